"""Errors as OpenAI's API writes them."""

from __future__ import annotations

from typing import Any

from linnet.errors import BackendError, Error, InputError
from linnet.serve.errors import ContextExceeded, QueueFull, Unavailable
from linnet.text.errors import TextError


class ApiError(Exception):
    """An answer other than success: `{"error": {"message", "type", "param", "code"}}`.

    `param` names the field of the request that is at fault.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        error = {
            "message": self.message,
            "type": _type(self.status),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def bad(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that is wrong."""
    return ApiError(400, message, param=param, code=code)


def _type(status: int) -> str:
    match status:
        case 401 | 403:
            return "authentication_error"
        case 429:
            return "rate_limit_error"
        case 503:
            return "service_unavailable"
        case _:
            return "server_error" if status >= 500 else "invalid_request_error"


def api_error(error: BaseException, prompt: str = "messages") -> ApiError:
    """What a client is told of an error of the engine or of text. `prompt`: the field of the
    request that the prompt came from."""
    match error:
        case ApiError():
            return error
        case ContextExceeded():
            return ApiError(
                400, str(error), param=prompt, code="context_length_exceeded"
            )  # fmt: skip
        case QueueFull():
            wait = max(1, round(error.retry_after))
            return ApiError(
                429, str(error), code="queue_full", headers={"Retry-After": str(wait)}
            )  # fmt: skip
        case Unavailable():
            return ApiError(503, str(error), code="unavailable", headers={"Retry-After": "5"})
        case InputError() | TextError():
            return ApiError(400, str(error), param=_named(str(error)), code="invalid_value")
        case BackendError() | Error():
            return ApiError(500, str(error))
        case _:
            # What it says is for the log: it may hold what no client should read.
            return ApiError(500, "the request failed through a fault of the server")


# Fields that the engine's own messages begin with, such as `top_p is 2; expected …`.
_FIELDS = (
    *("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "seed", "n", "max_tokens", "stop", "logit_bias", "logprobs", "prompt"),
    *("messages", "tools", "response_format", "structured_outputs"),
)
_KINDS = {
    "schema": "response_format",
    "json": "response_format",
    "regex": "structured_outputs",
    "lark": "structured_outputs",
    "choice": "structured_outputs",
}


def _named(message: str) -> str | None:
    word = message.partition(" ")[0].partition("[")[0]
    if word.startswith("text.format"):
        return "text.format"
    word = word.partition(".")[0]
    return word if word in _FIELDS else _KINDS.get(word)
