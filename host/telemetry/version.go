package telemetry

// version is the release; it changes with CHANGELOG.md.
const version = "0.1.0"

// Version returns the release.
func Version() string { return version }
