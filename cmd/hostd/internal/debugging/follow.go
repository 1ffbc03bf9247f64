package debugging

import (
	"context"
	"errors"
	"iter"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

const (
	// reopenEvery is the interval between two searches for another node.
	reopenEvery = 200 * time.Millisecond
	// tellAgain is how far back the lines of the next node are compared with
	// lines that were printed, because lines that were written at the same
	// moment may be stored in any order.
	tellAgain = 10 * time.Second
	// mostCompared limits the compared lines.
	mostCompared = 1 << 16
)

// follow requests stored lines and then new lines. If its node ends, it
// continues at the next node, and prints no line twice.
type follow struct {
	open    func(ctx context.Context) iter.Seq2[*clusterv1.TailLogsResponse, error]
	reopen  func(ctx context.Context) error // connects to the next node
	within  time.Duration                   // timeout of reopen
	every   time.Duration                   // interval between attempts
	say     func(format string, args ...any)
	printed map[string]*printedLines // printed lines, by node
}

func newFollow(s *cli.Session, req *clusterv1.TailLogsRequest, say func(format string, args ...any)) *follow {
	return &follow{
		open: func(ctx context.Context) iter.Seq2[*clusterv1.TailLogsResponse, error] {
			return cli.Stream(ctx, s.ClusterService.TailLogs, req)
		},
		reopen: s.Reopen, within: s.Timeout, every: reopenEvery, say: say, printed: map[string]*printedLines{},
	}
}

func (f *follow) stream(ctx context.Context) iter.Seq2[*clusterv1.TailLogsResponse, error] {
	return func(yield func(*clusterv1.TailLogsResponse, error) bool) {
		for {
			var failed error
			for m, err := range f.open(ctx) {
				if err != nil {
					failed = err
					break
				}
				if f.dropPrinted(m); !yield(m, nil) {
					return
				}
			}
			if ctx.Err() != nil || failed != nil && !cli.NodeEnded(failed) {
				yield(nil, errors.Join(failed, ctx.Err()))
				return
			}
			f.say("the node has stopped: trying another one\n")
			if err := f.next(ctx); err != nil {
				yield(nil, err)
				return
			}
			for _, t := range f.printed {
				t.again = true
			}
		}
	}
}

// next connects to another node, within the timeout of a command.
func (f *follow) next(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.within)
	defer cancel()
	var failed error
	for {
		select {
		case <-time.After(f.every):
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		}
		if failed = f.reopen(ctx); failed == nil {
			return nil
		}
	}
}

// printedLines are the newest printed lines of a node.
type printedLines struct {
	newest time.Time
	lines  map[printedLine]bool
	again  bool // the node may repeat printed lines
}

type printedLine struct {
	at       int64
	id, text string
}

// dropPrinted removes the lines that were printed already from a message, and
// remembers the rest.
func (f *follow) dropPrinted(m *clusterv1.TailLogsResponse) {
	if len(m.GetLines()) == 0 {
		return
	}
	t := f.printed[m.GetNodeId()]
	if t == nil {
		t = &printedLines{lines: map[printedLine]bool{}}
		f.printed[m.GetNodeId()] = t
	}
	kept := m.Lines[:0]
	for _, l := range m.Lines {
		at := l.GetWrittenAt().AsTime()
		line := printedLine{at.UnixNano(), l.GetEntityId(), l.GetText()}
		if t.again && (t.lines[line] || at.Before(t.newest.Add(-tellAgain))) {
			continue
		}
		if at.After(t.newest) {
			t.newest, t.again = at, false
		}
		kept, t.lines[line] = append(kept, l), true
	}
	if m.Lines = kept; len(t.lines) > mostCompared {
		since := t.newest.Add(-tellAgain).UnixNano()
		for line := range t.lines {
			if line.at < since || len(t.lines) > 2*mostCompared {
				delete(t.lines, line)
			}
		}
	}
}
