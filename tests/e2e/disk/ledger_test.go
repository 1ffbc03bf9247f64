package disk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// The types of the ledger's module. Each command to a bulk entity writes an
// event of bulkBytes, so that a log fills quickly.
const (
	noteType  = "note"
	bulkType  = "bulk"
	bulkBytes = 60 << 10
)

// ledgerModule returns a small module, so that nodes start quickly.
func ledgerModule() []byte {
	event := append([]byte{4, 0}, "bulk"...)
	for i := range bulkBytes {
		event = append(event, byte(i*i>>7)) // bytes that compress badly
	}
	frames := abi.AppendFrame(nil, abi.OutEvent, event)
	return guest.Module{
		Good: noteType, Bad: bulkType, MemoryPages: 4,
		Handle: guest.Span(guest.FramesAt, uint32(len(frames))), Frames: frames,
	}.Build()
}

// ledger is the data that a node served before the damage: the events of each
// entity, as text.
type ledger map[string][]string

// write sends commands to entities of a type. All of them must succeed.
func write(t *testing.T, c *client.Client, entityType string, entities, commands int) {
	t.Helper()
	s := c.Stream(client.StreamOptions{Outstanding: 64})
	var mu sync.Mutex
	var failed error
	for i := range commands {
		cmd := client.Command{EntityType: entityType, EntityID: fmt.Sprint(i % entities), Name: "go", ID: fmt.Sprintf("%s-%d", entityType, i)}
		if err := s.Send(t.Context(), cmd, func(_ client.Reply, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = fmt.Errorf("%s: %w", cmd.ID, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if failed != nil {
		t.Fatal(failed)
	}
}

// read reads all entities of the ledger's types from a node. The ledger omits
// entities whose events cannot be read; their errors are returned.
func read(ctx context.Context, c *client.Client) (ledger, []error) {
	l, failures := ledger{}, []error(nil)
	for _, entityType := range []string{noteType, bulkType} {
		for e, err := range c.List(ctx, &entityv1.ListEntitiesRequest{EntityType: entityType}) {
			if err != nil {
				failures = append(failures, fmt.Errorf("list %s: %w", entityType, err))
				break
			}
			name := entityType + "/" + e.GetEntityId()
			events, err := readEntity(ctx, c, entityType, e.GetEntityId())
			if err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", name, err))
				continue
			}
			l[name] = events
		}
	}
	return l, failures
}

func readEntity(ctx context.Context, c *client.Client, entityType, id string) ([]string, error) {
	var events []string
	for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: entityType, EntityID: id}) {
		if err != nil {
			return nil, err
		}
		events = append(events, fmt.Sprintf("%d %s %s %d %s %x", e.Sequence, e.Type, e.CommandID, e.RecordedAt.UnixNano(), e.ModuleDigest, e.Data))
	}
	return events, nil
}

// compare returns the differences between the data that a node serves now and
// the data that it served before. An entity that could not be read does not
// count as a difference, because the node rejected the read.
func (l ledger) compare(now ledger, failures []error) error {
	failed := func(name string) bool {
		return slices.ContainsFunc(failures, func(err error) bool {
			return strings.HasPrefix(err.Error(), name+":") || strings.HasPrefix(err.Error(), "list "+strings.Split(name, "/")[0]+":")
		})
	}
	for name, events := range l {
		if got, served := now[name]; !slices.Equal(events, got) && (served || !failed(name)) {
			return fmt.Errorf("%s: %d events are served, %d were acknowledged, or their content differs", name, len(got), len(events))
		}
	}
	for name := range now {
		if l[name] == nil {
			return fmt.Errorf("%s is served and was never written", name)
		}
	}
	return nil
}

// refusals are the codes with which a node may refuse to serve damaged data.
// The client returns the last of these codes when all its retries were
// rejected.
var refusals = []connect.Code{connect.CodeDataLoss, connect.CodeUnavailable, connect.CodeDeadlineExceeded}

func pushLedger(t *testing.T, node *testkit.Node, c *client.Client) {
	t.Helper()
	if _, err := c.Upload(t.Context(), ledgerModule(), true); err != nil {
		t.Fatalf("upload: %v\n%s", err, node.Log())
	}
}
