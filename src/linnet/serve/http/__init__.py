"""OpenAI's API over an engine: an ASGI application, its metrics, and the process that serves it."""
