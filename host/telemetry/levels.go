package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// Settings of the cluster that override the configured log level for a while.
// LevelSetting applies to all nodes. LevelSetting + "." + NODE applies to one
// node and takes precedence. LevelForSetting is the duration.
const (
	LevelSetting    = "log.level"
	LevelForSetting = "log.for"
)

const (
	levelFor     = 10 * time.Minute
	mostLevelFor = 24 * time.Hour
	mostPackages = 32
)

// Levels are the minimum levels of logged lines, in total and by package. They
// can be changed at run time and are safe for concurrent use.
type Levels struct {
	base slog.Level
	now  func() time.Time
	set  atomic.Pointer[levelSet]
}

// levelSet overrides the base level until a time.
type levelSet struct {
	text     string // the setting with its duration and revision
	until    time.Time
	least    slog.Level // minimum over all packages
	other    slog.Level // level of packages that are not listed
	packages []packageLevel
}

type packageLevel struct {
	path  string
	level slog.Level
}

// NewLevels returns Levels with the level base for all packages. now is the
// clock; nil means time.Now.
func NewLevels(base slog.Level, now func() time.Time) *Levels {
	if now == nil {
		now = time.Now
	}
	return &Levels{base: base, now: now}
}

// Set applies settings. value is the value of LevelSetting, or "" if it is
// unset, and long is the value of LevelForSetting. revision distinguishes a
// new setting from an old setting with the same value. Set returns a
// description of what has changed, or "". If the settings are invalid, it
// returns an error and changes nothing.
func (l *Levels) Set(value, long string, revision uint64) (changed string, err error) {
	was := l.set.Load()
	if value == "" {
		if was == nil {
			return "", nil
		}
		l.set.Store(nil)
		return "as configured", nil
	}
	text := fmt.Sprintf("%s for %s since revision %d", value, long, revision)
	if was != nil && was.text == text {
		return "", nil
	}
	next, err := parseLevels(value, l.base)
	if err != nil {
		return "", err
	}
	d, err := parseLevelFor(long)
	if err != nil {
		return "", err
	}
	next.text, next.until = text, l.now().Add(d)
	l.set.Store(next)
	return value, nil
}

// current returns the override in force, or nil.
func (l *Levels) current() *levelSet {
	s := l.set.Load()
	if s == nil || !l.now().Before(s.until) {
		return nil
	}
	return s
}

// isEnabled reports whether any package logs lines of this level.
func (l *Levels) isEnabled(level slog.Level) bool {
	if s := l.current(); s != nil {
		return level >= s.least
	}
	return level >= l.base
}

// logs reports whether the function at pc logs lines of this level.
func (l *Levels) logs(level slog.Level, pc uintptr) bool {
	s := l.current()
	if s == nil {
		return level >= l.base
	}
	if len(s.packages) == 0 || pc == 0 {
		return level >= s.other
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return level >= s.of(packageOf(frame.Function))
}

// of returns the level of a package, which is set by the longest matching path.
func (s *levelSet) of(path string) slog.Level {
	level, longest := s.other, 0
	for _, p := range s.packages {
		if len(p.path) > longest && (path == p.path || strings.HasPrefix(path, p.path+"/")) {
			level, longest = p.level, len(p.path)
		}
	}
	return level
}

// module is the import path prefix of this module's packages.
const module = "github.com/hostd/hostd/"

// packageOf returns the package of a function, without the prefix module.
func packageOf(function string) string {
	function = strings.TrimPrefix(function, module)
	slash := strings.LastIndexByte(function, '/') + 1
	if dot := strings.IndexByte(function[slash:], '.'); dot >= 0 {
		return function[:slash+dot]
	}
	return function
}

// CheckSetting returns an error if a setting about logs is invalid.
func CheckSetting(key, value string) error {
	node, one := strings.CutPrefix(key, LevelSetting+".")
	switch {
	case value == "":
		return nil
	case key == LevelForSetting:
		_, err := parseLevelFor(value)
		return err
	case key == LevelSetting, one && node != "":
		_, err := parseLevels(value, slog.LevelInfo)
		return err
	case strings.HasPrefix(key, "log."):
		return fmt.Errorf("keys that begin with log. are %s, %s.NODE and %s", LevelSetting, LevelSetting, LevelForSetting)
	}
	return nil
}

// parseLevels parses levels such as info,host/cluster=debug.
func parseLevels(text string, base slog.Level) (*levelSet, error) {
	s := &levelSet{other: base}
	parts := strings.Split(text, ",")
	if len(parts) > mostPackages {
		return nil, fmt.Errorf("the value names more than %d packages", mostPackages)
	}
	others := false
	for _, part := range parts {
		path, name, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			path, name = "", path
		}
		level, ok := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[name]
		switch {
		case !ok:
			return nil, fmt.Errorf("%.32q is not debug, info, warn or error, or PACKAGE= and one of these", part)
		case !named && others:
			return nil, errors.New("the value sets the level of all packages twice")
		case !named:
			s.other, others = level, true
		case path == "" || strings.Trim(path, "abcdefghijklmnopqrstuvwxyz0123456789_-/") != "" || strings.Trim(path, "/") != path:
			return nil, fmt.Errorf("%.32q is not a package, such as host/cluster", path)
		default:
			s.packages = append(s.packages, packageLevel{path, level})
		}
	}
	s.least = s.other
	for _, p := range s.packages {
		s.least = min(s.least, p.level)
	}
	return s, nil
}

func parseLevelFor(text string) (time.Duration, error) {
	if text == "" {
		return levelFor, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > mostLevelFor {
		return 0, fmt.Errorf("%.32q is not a duration between 1s and 24h, such as 30m", text)
	}
	return d, nil
}

// leveled drops lines that Levels do not allow.
type leveled struct {
	slog.Handler
	levels *Levels
}

// Enabled implements slog.Handler.
func (h leveled) Enabled(_ context.Context, level slog.Level) bool { return h.levels.isEnabled(level) }

// Handle implements slog.Handler.
func (h leveled) Handle(ctx context.Context, r slog.Record) error {
	if !h.levels.logs(r.Level, r.PC) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.levels}
}

// WithGroup implements slog.Handler.
func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.levels}
}

// Handler returns a handler that passes the allowed lines to next. next should
// not filter by level itself.
func (l *Levels) Handler(next slog.Handler) slog.Handler { return leveled{next, l} }

// LevelsOf returns the levels of a logger made by NewLogger, or of a logger
// derived from one. It returns nil for any other logger.
func LevelsOf(l *slog.Logger) *Levels {
	if h, ok := l.Handler().(leveled); ok {
		return h.levels
	}
	return nil
}
