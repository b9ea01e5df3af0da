package tidemill

// WithBinary sets the digest of the program's executable, which only Main knows.
func WithBinary(digest string) ContextOption { return withBinary(digest) }
