package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/telemetry"
)

// said logs a line at each level and returns the lines that were written.
func said(out *bytes.Buffer, log *slog.Logger) string {
	out.Reset()
	log.Debug("debug")
	log.Info("info")
	log.Warn("warn")
	log.Error("error")
	var words []string
	for line := range strings.Lines(out.String()) {
		_, msg, _ := strings.Cut(strings.TrimSpace(line), "msg=")
		words = append(words, strings.Fields(msg)[0])
	}
	return strings.Join(words, " ")
}

// TestLevelsAreSetAtRunTime: levels apply to existing loggers with their
// attributes, for all packages or for some, until they are unset.
func TestLevelsAreSetAtRunTime(t *testing.T) {
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, slog.LevelWarn, config.LogText)
	levels := telemetry.LevelsOf(log.With("a", 1).WithGroup("g"))
	if levels == nil || levels != telemetry.LevelsOf(log) || telemetry.LevelsOf(slog.New(slog.DiscardHandler)) != nil {
		t.Fatal("the levels of a logger are not found")
	}
	for revision, c := range []struct{ set, want string }{
		{"", "warn error"}, {"info", "info warn error"}, {"error", "error"}, {"debug", "debug info warn error"},
		{"error,host/telemetry_test=debug", "debug info warn error"}, // the name that the compiler gives this package
		{"host=info,host/telemetry_test=error", "error"}, {"host/telemetry_test=error,host=info", "error"}, {"host=info", "info warn error"},
		{"hos=debug", "warn error"}, {"host/telemetry_tes=debug", "warn error"}, {"debug,host/telemetry_test=error", "error"}, {"", "warn error"},
	} {
		changed, err := levels.Set(c.set, "", uint64(revision))
		if err != nil || (changed == "") != (revision == 0) {
			t.Errorf("%q: changed %q, %v", c.set, changed, err)
		}
		for _, l := range []*slog.Logger{log, log.With("a", 1), log.WithGroup("g").With("b", 2)} {
			if got := said(&out, l); got != c.want {
				t.Errorf("%q logs %q, want %q", c.set, got, c.want)
			}
		}
	}
}

// TestLogLevelOverrideExpires: an override ends after its duration. If the
// same setting is read again, the duration does not start again; if a new
// setting with the same value is read, it does.
func TestLogLevelOverrideExpires(t *testing.T) {
	now := time.Unix(1000, 0)
	levels := telemetry.NewLevels(slog.LevelInfo, func() time.Time { return now })
	var out bytes.Buffer
	log := slog.New(levels.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	set := func(long string, revision uint64, want string) {
		t.Helper()
		if _, err := levels.Set("debug", long, revision); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(said(&out, log), " "); got != want {
			t.Errorf("after %v the first is %s, want %s", now.Sub(time.Unix(1000, 0)), got, want)
		}
	}
	set("", 1, "debug")
	now = now.Add(10*time.Minute - 1)
	set("", 1, "debug")
	now = now.Add(1)
	set("", 1, "info")
	set("", 2, "debug")
	set("20s", 2, "debug")
	now = now.Add(20 * time.Second)
	set("20s", 2, "info")
}

func TestSettingsAboutLogs(t *testing.T) {
	for key, values := range map[string]map[string]bool{
		"log.level": {
			"debug": true, "info,host/cluster=debug": true, " info , host=warn": true, "": true, "host/edge=debug": true,
			"loud": false, "info,debug": false, "Host=info": false, "/host=info": false, "host/=info": false, "=info": false, "host=": false, "info,": false, strings.Repeat("a=info,", 32) + "info": false,
		},
		"log.level.n2": {"debug": true, "": true, "loud": false},
		"log.level.":   {"debug": false, "": true},
		"log.for":      {"10m": true, "1s": true, "24h": true, "": true, "25h": false, "0s": false, "10": false, "for ever": false},
		"log.for.n2":   {"10m": false},
		"log.levels":   {"debug": false},
		"logs":         {"anything": true},
	} {
		for value, ok := range values {
			if err := telemetry.CheckSetting(key, value); (err == nil) != ok {
				t.Errorf("%s = %q: %v", key, value, err)
			}
		}
	}
}
