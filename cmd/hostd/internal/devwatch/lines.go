package devwatch

import (
	"context"
	"strings"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// tailPause is the pause before nodes that do not answer are called again.
const tailPause = time.Second

// follow shows the log lines of a type's guests, until ctx ends. If no node
// answers it tries again, because the nodes may be restarted.
func (l *Live) follow(ctx context.Context, entityType string) {
	for since := l.began; ctx.Err() == nil; {
		since = l.tail(ctx, entityType, since)
		select {
		case <-ctx.Done():
		case <-time.After(tailPause):
		}
	}
}

// tail shows lines until the stream ends, and returns the time of the last
// line. It skips lines that are older than since, because they were shown
// already.
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
			l.say("%s\n", l.Paint.Warn(entityType+": lost lines"))
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

// show prints a log line of a guest. For a failed call it prints only the first
// line, because the lines that the guest wrote during the call are printed
// separately.
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

// level colours a text according to its log level.
func (l *Live) level(level, text string) string {
	switch strings.ToLower(level) {
	case "error", "fault":
		return l.Paint.Bad(text)
	case "warn":
		return l.Paint.Warn(text)
	}
	return text
}
