package raftgroup

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
)

// raftLogger passes raft's own lines on as debug, its warnings too: what an
// operator wants to know is reported by the loop.
type raftLogger struct {
	log   *slog.Logger
	debug bool
}

var _ raft.Logger = raftLogger{}

func newRaftLogger(log *slog.Logger, shard uint32) raftLogger {
	return raftLogger{log: log.With("shard_id", shard), debug: log.Enabled(context.Background(), slog.LevelDebug)}
}

func (l raftLogger) print(v []any) {
	if l.debug {
		l.log.Debug("raft", "line", fmt.Sprint(v...))
	}
}

func (l raftLogger) printf(format string, v []any) {
	if l.debug {
		l.log.Debug("raft", "line", fmt.Sprintf(format, v...))
	}
}

func (l raftLogger) Debug(v ...any)                   { l.print(v) }
func (l raftLogger) Debugf(format string, v ...any)   { l.printf(format, v) }
func (l raftLogger) Info(v ...any)                    { l.print(v) }
func (l raftLogger) Infof(format string, v ...any)    { l.printf(format, v) }
func (l raftLogger) Warning(v ...any)                 { l.print(v) }
func (l raftLogger) Warningf(format string, v ...any) { l.printf(format, v) }
func (l raftLogger) Error(v ...any)                   { l.log.Error("raft", "line", fmt.Sprint(v...)) }
func (l raftLogger) Errorf(format string, v ...any) {
	l.log.Error("raft", "line", fmt.Sprintf(format, v...))
}

// A broken invariant of raft ends the process.
func (l raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
