package store

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// badgerLogger passes Badger's lines on; its info is our debug. One of its debug
// lines is where merging is paced.
type badgerLogger struct {
	log    *slog.Logger
	merges *merges
}

func line(format string, args []any) slog.Attr {
	return slog.String("line", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l badgerLogger) Errorf(format string, args ...any) {
	l.log.Error("badger reports an error", line(format, args))
}

func (l badgerLogger) Warningf(format string, args ...any) {
	l.log.Warn("badger warns", line(format, args))
}

func (l badgerLogger) Infof(format string, args ...any) {
	l.log.Debug("badger reports", line(format, args))
}

func (l badgerLogger) Debugf(format string, args ...any) {
	if format != mergedLine || len(args) == 0 {
		return
	}
	if took, ok := args[len(args)-1].(time.Duration); ok {
		l.merges.merged(took)
	}
}
