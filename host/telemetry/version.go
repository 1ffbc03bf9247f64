package telemetry

import (
	"runtime"
	"runtime/debug"
)

// version is the release; it changes with CHANGELOG.md. Releases set the four
// with -ldflags -X, because archives of sources have no repository to read.
var (
	version = "0.1.0"
	commit  string
	date    string // of the commit, RFC 3339
	dirty   string // "true" or "false"
)

// Version returns the release.
func Version() string { return version }

// Build describes how this program was built.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // empty if the build did not record it
	Date    string `json:"date,omitempty"`   // of the commit, RFC 3339
	Dirty   bool   `json:"dirty"`            // the sources differed from the commit
	Go      string `json:"go"`
	System  string `json:"system"` // operating system and processor
}

// ReadBuild returns what the release's build set or else what the Go command
// recorded of the repository, which it does unless -buildvcs=false.
func ReadBuild() Build {
	b := Build{version, commit, date, dirty == "true", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if commit != "" {
		return b
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.recorded(info.Settings)
	}
	return b
}

func (b *Build) recorded(settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Dirty = s.Value == "true"
		}
	}
}
