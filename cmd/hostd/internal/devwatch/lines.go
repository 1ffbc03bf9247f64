package devwatch

import (
	"context"
	"strings"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// tailPause is how long nodes that do not answer are left alone.
const tailPause = time.Second

// follow shows the lines that a type's guests write, until ctx ends. Where the
// nodes are gone it tries again: they may come back.
func (l *Live) follow(ctx context.Context, entityType string) {
	for since := l.began; ctx.Err() == nil; {
		since = l.tail(ctx, entityType, since)
		select {
		case <-ctx.Done():
		case <-time.After(tailPause):
		}
	}
}

// tail shows lines until the stream ends, and returns when the last one was
// written. Those of before since were shown already.
func (l *Live) tail(ctx context.Context, entityType string, since time.Time) time.Time {
	s, err := l.Dial(ctx)
	if err != nil {
		return since
	}
	defer s.Close()
	newest := since
	for m, err := range cli.Stream(ctx, s.ClusterService.TailLogs, &clusterv1.TailLogsRequest{EntityType: entityType, Follow: true}) {
		if err != nil {
			return newest
		}
		if m.GetLost() > 0 {
			l.say("%s\n", l.Paint.Warn(entityType+": lines are lost"))
		}
		for _, line := range m.GetLines() {
			at := line.GetWrittenAt().AsTime()
			if !at.After(since) {
				continue
			}
			if at.After(newest) {
				newest = at
			}
			l.show(entityType, line)
		}
	}
	return newest
}

// show prints what a guest wrote. Of how a call failed it is the first line:
// what the guest wrote then has lines of its own.
func (l *Live) show(entityType string, line *clusterv1.TailLogsResponse_Line) {
	text := strings.TrimRight(line.GetText(), "\n")
	if line.GetLevel() == "fault" {
		text, _, _ = strings.Cut(text, "\n")
	}
	for one := range strings.SplitSeq(text, "\n") {
		one = cli.Clean(strings.ReplaceAll(one, "\t", "    "))
		l.say("%s %s\n", l.Paint.Note(entityType+" "+cli.Clean(line.GetEntityId())+" |"), l.level(line.GetLevel(), one))
	}
}

// level paints a line by its level.
func (l *Live) level(level, text string) string {
	switch strings.ToLower(level) {
	case "error", "fault":
		return l.Paint.Bad(text)
	case "warn":
		return l.Paint.Warn(text)
	}
	return text
}
