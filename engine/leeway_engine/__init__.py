"""One engine pod: continuous batching of a language model over paged KV, with knobs that turn live."""
