package telemetry

import (
	"runtime/debug"
	"testing"
)

func TestBuildReadsCommit(t *testing.T) {
	b := Build{Version: "1"}
	b.setVCS([]debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-28T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}})
	if want := (Build{Version: "1", Commit: "abc", Date: "2026-11-28T00:00:00Z", Dirty: true}); b != want {
		t.Errorf("got %+v, want %+v", b, want)
	}
}

func TestBuildOfARelease(t *testing.T) {
	defer func(v, c, d string) { version, commit, date = v, c, d }(version, commit, date)
	version, commit, date = "9.9.9", "def", "2026-11-28T01:00:00Z"
	if b := ReadBuild(); b.Version != "9.9.9" || b.Commit != "def" || b.Date != date || b.Dirty || b.Go == "" || b.System == "" {
		t.Errorf("%+v", b)
	}
}
