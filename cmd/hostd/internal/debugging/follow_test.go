package debugging

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// tailResponse returns a message of a node with lines at the given seconds; a negative
// number is a second line at the same moment.
func tailResponse(node string, seconds ...int64) *clusterv1.TailLogsResponse {
	m := &clusterv1.TailLogsResponse{NodeId: node}
	for _, s := range seconds {
		at := max(s, -s)
		m.Lines = append(m.Lines, &clusterv1.TailLogsResponse_Line{EntityId: "e", Text: fmt.Sprint(s), WrittenAt: timestamppb.New(time.Unix(at, 0))})
	}
	return m
}

// scripted follows streams, each of which sends its messages and then fails.
func scripted(streams [][]*clusterv1.TailLogsResponse, ends []error, reopened *int, reopen func() error) *follow {
	at := -1
	return &follow{
		open: func(context.Context) iter.Seq2[*clusterv1.TailLogsResponse, error] {
			at++
			return func(yield func(*clusterv1.TailLogsResponse, error) bool) {
				for _, m := range streams[at] {
					if !yield(m, nil) {
						return
					}
				}
				if ends[at] != nil {
					yield(nil, ends[at])
				}
			}
		},
		reopen: func(context.Context) error { *reopened++; return reopen() },
		within: time.Minute, every: time.Millisecond, say: func(string, ...any) {}, printed: map[string]*printedLines{},
	}
}

func taken(f *follow, ctx context.Context) (texts []string, failed error) {
	for m, err := range f.stream(ctx) {
		if err != nil {
			return texts, err
		}
		for _, l := range m.GetLines() {
			texts = append(texts, m.GetNodeId()+" "+l.GetText())
		}
	}
	return texts, nil
}

// TestFollowContinuesOnNextNode checks that the next node is asked if a
// stream ends, with or without an error. Each line is printed once, even if
// lines have the same time or a clock was set back. An error that any node
// would return ends following.
func TestFollowContinuesOnNextNode(t *testing.T) {
	gone := &client.Error{Code: connect.CodeUnavailable, Message: "gone"}
	denied := &client.Error{Code: connect.CodePermissionDenied, Message: "denied"}
	reopened := 0
	f := scripted([][]*clusterv1.TailLogsResponse{
		{tailResponse("n1", 100, 101), tailResponse("n2", 50, 102), tailResponse("n1", 99)},
		{tailResponse("n1", 100, 101, 99, -101, 103), tailResponse("n2", 50, 102), tailResponse("n2", 104, 90)},
		{tailResponse("n1", 103, 105), tailResponse("n2", 104)},
	}, []error{gone, nil, denied}, &reopened, func() error {
		if reopened == 1 {
			return errors.New("nobody answers")
		}
		return nil
	})
	got, err := taken(f, t.Context())
	want := []string{"n1 100", "n1 101", "n2 50", "n2 102", "n1 99", "n1 -101", "n1 103", "n2 104", "n2 90", "n1 105"}
	if !slices.Equal(got, want) || !errors.Is(err, denied) || reopened != 3 {
		t.Errorf("told are %q, want %q; %d attempts, %v", got, want, reopened, err)
	}
}

// TestFollowEndsWithoutNodes checks that following ends if no node answers within the
// timeout of a command, or if the caller cancels.
func TestFollowEndsWithoutNodes(t *testing.T) {
	nobody, reopened := errors.New("nobody answers"), 0
	f := scripted([][]*clusterv1.TailLogsResponse{{tailResponse("n1", 1)}}, []error{nil}, &reopened, func() error { return nobody })
	f.within = 20 * time.Millisecond
	if got, err := taken(f, t.Context()); len(got) != 1 || err == nil {
		t.Errorf("told are %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reopened = 0
	f = scripted([][]*clusterv1.TailLogsResponse{{tailResponse("n1", 1)}}, []error{nil}, &reopened, func() error { return nobody })
	if _, err := taken(f, ctx); !errors.Is(err, context.Canceled) || reopened != 0 {
		t.Errorf("without anybody who waits: %v, %d attempts", err, reopened)
	}
}
