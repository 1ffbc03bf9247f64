package store

import (
	"fmt"
	"log/slog"
	"strings"
)

// badgerLogger passes Badger's lines on; its info is our debug.
type badgerLogger struct{ log *slog.Logger }

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

func (l badgerLogger) Debugf(string, ...any) {}
