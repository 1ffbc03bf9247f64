package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/hostd/hostd/api/client"
)

// head is what a chain answers.
type head struct {
	Sequence uint64 `json:"sequence"`
	Hash     string `json:"hash"`
}

// acked is one acknowledged link.
type acked struct {
	n     int
	reply head
}

// history is what the callers of chains were told.
type history struct {
	mu    sync.Mutex
	acks  map[string]map[string]acked // by entity, then by command id
	total int
	// failed are the commands whose failure was definite: they must have left
	// nothing.
	failed map[string]map[string]error
}

func newHistory() *history {
	return &history{acks: map[string]map[string]acked{}, failed: map[string]map[string]error{}}
}

// record keeps the outcome of the link n of an entity.
func (h *history) record(t *testing.T, entity, id string, n int, reply client.Reply, err error) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if client.OutcomeUnknown(err) {
			return // it may have taken effect or not: both are right
		}
		if h.failed[entity] == nil {
			h.failed[entity] = map[string]error{}
		}
		h.failed[entity][id] = err
		return
	}
	var told head
	if err := json.Unmarshal(reply.Data, &told); err != nil || told.Sequence != reply.Sequence {
		t.Errorf("%s %s: reply %s at sequence %d", entity, id, reply.Data, reply.Sequence)
	}
	if h.acks[entity] == nil {
		h.acks[entity] = map[string]acked{}
	}
	h.acks[entity][id] = acked{n, told}
	h.total++
}

// count returns how many links were acknowledged.
func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// check demands that the journal has no fault.
func (h *history) check(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	for _, fault := range h.faults(ctx, c) {
		t.Error(fault)
	}
}

// faults reads every chain back and holds it to what was acknowledged: each
// acknowledged command is in the journal once, at its sequence, with the hash
// that was answered; nothing that failed is; the state is the fold of the
// events.
func (h *history) faults(ctx context.Context, c *client.Client) (faults []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for entity := range h.acks {
		fault := func(format string, args ...any) {
			faults = append(faults, entity+": "+fmt.Sprintf(format, args...))
		}
		h.checkEntity(ctx, c, entity, fault)
	}
	return faults
}

// checkEntity checks one chain. A damaged event ends it: what follows cannot
// be judged.
func (h *history) checkEntity(ctx context.Context, c *client.Client, entity string, fault func(string, ...any)) {
	acks := h.acks[entity]
	seen := map[string]bool{}
	var sum []byte
	var sequence uint64
	for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: "chain", EntityID: entity}) {
		if err != nil {
			fault("read events: %v", err)
			return
		}
		var link struct {
			CommandID string `json:"commandId"`
			N         int64  `json:"n"`
		}
		if err := json.Unmarshal(e.Data, &link); err != nil || link.CommandID != e.CommandID {
			fault("event %d of command %s holds %s", e.Sequence, e.CommandID, e.Data)
			return
		}
		if sequence++; e.Sequence != sequence {
			fault("event %d comes after event %d", e.Sequence, sequence-1)
			return
		}
		if seen[e.CommandID] {
			fault("command %s took effect twice", e.CommandID)
		}
		seen[e.CommandID] = true
		if failed := h.failed[entity][e.CommandID]; failed != nil {
			fault("command %s is in the journal although it failed: %v", e.CommandID, failed)
		}
		next := sha256.Sum256(strconv.AppendInt(append(append([]byte{}, sum...), e.CommandID...), link.N, 10))
		sum = next[:]
		if a, ok := acks[e.CommandID]; ok && (a.reply != head{sequence, hex.EncodeToString(sum)} || a.n != int(link.N)) {
			fault("command %s was answered %+v and is at sequence %d with hash %x", e.CommandID, a, sequence, sum)
		}
	}
	for id, a := range acks {
		if !seen[id] {
			fault("command %s was acknowledged at sequence %d and is lost", id, a.reply.Sequence)
		}
	}
	answer, err := c.Query(ctx, client.Query{EntityType: "chain", EntityID: entity, Name: "head"})
	if want := fmt.Sprintf(`{"sequence":%d,"hash":"%x"}`, sequence, sum); err != nil || string(answer.Data) != want {
		fault("the state is %s, %v, the events make %s", answer.Data, err, want)
	}
}
