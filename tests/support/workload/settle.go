package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
)

// ReadBack reads every entity of the history from a cluster without load. It
// checks the events against the answers that callers received, and the state
// against the events. It adds the query of the state to the history. It returns
// the number of events.
func ReadBack(ctx context.Context, c *client.Client, h *history.History) (events int, err error) {
	var errs []error
	for _, e := range h.Entities() {
		read, err := readEvents(ctx, c, e)
		if err != nil {
			return events, fmt.Errorf("read the events of %s: %w", e, err)
		}
		events += len(read)
		want, err := h.CheckEvents(e, read)
		if err != nil {
			errs = append(errs, err)
		}
		a := history.Attempt{Entity: e, Query: true, Name: Query(e.Type), Start: h.Now() + time.Nanosecond}
		answer, err := c.Query(ctx, client.Query{EntityType: e.Type, EntityID: e.ID, Name: a.Name})
		if err != nil {
			return events, fmt.Errorf("query %s: %w", e, err)
		}
		a.End, a.Outcome, a.Reply, a.Sequence = h.Now(), history.OK, string(answer.Data), answer.Sequence
		h.Add(a)
		if a.Reply != want || a.Sequence != uint64(len(read)) {
			errs = append(errs, fmt.Errorf("%s: the state is %s at sequence %d, the %d events make %s", e, a.Reply, a.Sequence, len(read), want))
		}
	}
	return events, errors.Join(errs...)
}

func readEvents(ctx context.Context, c *client.Client, e history.Entity) (events []history.Event, err error) {
	for event, err := range c.ReadEvents(ctx, client.EventRange{EntityType: e.Type, EntityID: e.ID}) {
		if err != nil {
			return nil, err
		}
		events = append(events, history.Event{Sequence: event.Sequence, Type: event.Type, CommandID: event.CommandID, Data: event.Data})
	}
	return events, nil
}
