package raftlog

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
)

// lines forwards raft's log lines at debug level, including its warnings: the
// loop reports the events that matter to an operator.
type lines struct {
	log   *slog.Logger
	debug bool
}

var _ raft.Logger = lines{}

// Lines returns the logger for raft in a shard's group.
func Lines(log *slog.Logger, shard uint32) raft.Logger {
	return lines{log: log.With("shard_id", shard), debug: log.Enabled(context.Background(), slog.LevelDebug)}
}

func (l lines) print(v []any) {
	if l.debug {
		l.log.Debug("raft", "line", fmt.Sprint(v...))
	}
}

func (l lines) printf(format string, v []any) {
	if l.debug {
		l.log.Debug("raft", "line", fmt.Sprintf(format, v...))
	}
}

func (l lines) Debug(v ...any)                   { l.print(v) }
func (l lines) Debugf(format string, v ...any)   { l.printf(format, v) }
func (l lines) Info(v ...any)                    { l.print(v) }
func (l lines) Infof(format string, v ...any)    { l.printf(format, v) }
func (l lines) Warning(v ...any)                 { l.print(v) }
func (l lines) Warningf(format string, v ...any) { l.printf(format, v) }
func (l lines) Error(v ...any)                   { l.log.Error("raft", "line", fmt.Sprint(v...)) }
func (l lines) Errorf(format string, v ...any) {
	l.log.Error("raft", "line", fmt.Sprintf(format, v...))
}

// A broken invariant of raft panics.
func (l lines) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l lines) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l lines) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l lines) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
