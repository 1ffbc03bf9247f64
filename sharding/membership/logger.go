package membership

import (
	"bytes"
	"log"
	"log/slog"
)

// newLogger carries memberlist's lines to a structured logger, for debugging
// only: its errors are everyday events of a network, and what matters to
// operators shows in Nodes.
func newLogger(to *slog.Logger) *log.Logger {
	return log.New(lines{to}, "", 0)
}

// lines takes memberlist's log lines to a logger.
type lines struct{ to *slog.Logger }

// Write implements io.Writer; each call is one line.
func (l lines) Write(line []byte) (int, error) {
	l.to.Debug("memberlist", "line", string(bytes.TrimSpace(line)))
	return len(line), nil
}
