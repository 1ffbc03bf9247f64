package membership

import (
	"bytes"
	"log"
	"log/slog"
)

// newLogger forwards memberlist's log lines at debug level only: its errors are
// normal network events, and Nodes has the information that operators need.
func newLogger(to *slog.Logger) *log.Logger {
	return log.New(lineWriter{to}, "", 0)
}

// lineWriter writes memberlist's log lines to a structured logger.
type lineWriter struct{ to *slog.Logger }

// Write implements io.Writer. Each call is one line.
func (l lineWriter) Write(line []byte) (int, error) {
	l.to.Debug("memberlist", "line", string(bytes.TrimSpace(line)))
	return len(line), nil
}
