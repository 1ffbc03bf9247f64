package client

import (
	"context"
	"iter"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// Event is one event of an entity's history.
type Event struct {
	Sequence     uint64
	Type         string
	StoredType   string // type in the journal if the event was upcast to Type; else empty
	Data         []byte
	CommandID    string
	RecordedAt   time.Time
	Tags         []string
	ModuleDigest string
	// Principal is the caller of the command, if the entity's type records
	// callers and the caller was known; nil otherwise.
	Principal *Principal
}

// Principal identifies the caller of a command.
type Principal struct {
	Kind   string   `json:"kind"` // "token", "jwt", "certificate" or "anonymous"
	Name   string   `json:"name"` // unique within the kind; empty for anonymous callers
	Groups []string `json:"groups,omitempty"`
}

func principalOf(m *entityv1.Principal) *Principal {
	if m == nil {
		return nil
	}
	return &Principal{Kind: m.GetKind(), Name: m.GetName(), Groups: m.GetGroups()}
}

// EventRange selects a range of an entity's history.
type EventRange struct {
	EntityType string
	EntityID   string
	From       uint64 // 0 and 1 mean the beginning
	To         uint64 // 0 means no end
	Follow     bool   // wait for more at the end
	// Upcast returns events of older forms in the current form, upcast by the
	// module that serves the type.
	Upcast bool
}

// ReadEvents iterates over an entity's events in order. If a node fails, it
// continues at another node without a gap or a repeated event, as long as ctx
// lasts or, without Follow and without a deadline, for the client's Timeout. An
// error ends it.
func (c *Client) ReadEvents(ctx context.Context, r EventRange) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		about := route{r.EntityType, r.EntityID}
		pause := newBackoff(c.opts)
		next := max(1, r.From)
		failures := 0
		for {
			c.freshen(ctx)
			n, at := c.target(about)
			reached, wanted, err := readOnce(ctx, n, r, next, yield)
			if !wanted || err == nil {
				return
			}
			if reached > next {
				failures = 0
				pause.reset()
			}
			next = reached
			failures++
			if !judge(err).retry || ctx.Err() != nil || !r.Follow && failures > maxReadFailures {
				yield(Event{}, clientError(err))
				return
			}
			c.noteFailure(about, n, at, connect.IsWireError(err))
			if pause.wait(ctx) != nil {
				yield(Event{}, clientError(err))
				return
			}
		}
	}
}

// maxReadFailures limits how many times in a row a read without Follow may
// fail.
const maxReadFailures = 20

// readOnce reads from one node until the stream ends. It returns the next event
// to read, whether the caller wants more, and why the stream ended.
func readOnce(ctx context.Context, n *node, r EventRange, next uint64, yield func(Event, error) bool) (uint64, bool, error) {
	stream, err := n.entities.ReadEvents(ctx, connect.NewRequest(&entityv1.ReadEventsRequest{
		EntityType: r.EntityType, EntityId: r.EntityID,
		FromSequence: next, ToSequence: r.To, Follow: r.Follow, AsData: true, Upcast: r.Upcast,
	}))
	if err != nil {
		return next, true, err
	}
	defer stream.Close()
	for stream.Receive() {
		m := stream.Msg()
		next = m.GetSequence() + 1
		if !yield(Event{
			Sequence:     m.GetSequence(),
			Type:         m.GetEventType(),
			StoredType:   m.GetStoredType(),
			Data:         payload(m.GetData(), m.GetJson()),
			CommandID:    m.GetCommandId(),
			RecordedAt:   m.GetRecordedAt().AsTime(),
			Tags:         m.GetTags(),
			ModuleDigest: m.GetModuleDigest(),
			Principal:    principalOf(m.GetPrincipal()),
		}, nil) {
			return next, false, nil
		}
	}
	return next, true, stream.Err()
}
