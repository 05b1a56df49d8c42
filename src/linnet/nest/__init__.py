"""Model packages as a registry knows them: cards, and where models and weights are found."""
