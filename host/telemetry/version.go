package telemetry

import (
	"runtime"
	"runtime/debug"
)

// version is the next release, and changes together with CHANGELOG.md. Release builds
// set all four variables with -ldflags -X, because source archives contain no
// repository to read them from.
var (
	version = "0.2.0-dev"
	commit  string
	date    string // time of the commit, in RFC 3339
	dirty   string // "true" or "false"
)

// Version returns the release.
func Version() string { return version }

// Build describes how this program was built.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // empty if the build did not record it
	Date    string `json:"date,omitempty"`   // time of the commit, in RFC 3339
	Dirty   bool   `json:"dirty"`            // the sources differed from the commit
	Go      string `json:"go"`
	System  string `json:"system"` // operating system and architecture
}

// ReadBuild returns the values set by a release build. If they are unset, it
// returns what the Go command recorded about the repository, which needs
// -buildvcs.
func ReadBuild() Build {
	b := Build{version, commit, date, dirty == "true", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if commit != "" {
		return b
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.setVCS(info.Settings)
	}
	return b
}

func (b *Build) setVCS(settings []debug.BuildSetting) {
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
