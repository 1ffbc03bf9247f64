package forward

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Kinds of requests on the wire.
const (
	wireCommand = iota
	wireQuery
	wireStaleQuery
	wireDeliver
)

// requestSize returns an upper bound of the encoded size of a request.
func requestSize(q *request.Request) int {
	n := 140 + len(q.Entity.Type) + len(q.Entity.ID) + len(q.Name) + len(q.Payload) + len(q.ID) + sendSize(q.Delivery)
	if q.Principal != nil {
		n += len(q.Principal.Bytes())
	}
	if q.Trace != nil {
		n += farBytesSize(journal.TraceContextBytes)
	}
	return n
}

// says selects the optional fields of requests that other nodes receive.
type says struct {
	principals bool // the authenticated callers of the requests
	traces     bool // the trace contexts of the requests
}

// appendRequest appends an item of a ForwardRequest.
func appendRequest(dst []byte, correlation uint64, q *request.Request, now time.Time, say says) []byte {
	kind := uint64(wireCommand)
	switch q.Kind {
	case request.Query:
		kind = wireQuery
	case request.StaleQuery:
		kind = wireStaleQuery
	case request.Deliver:
		kind = wireDeliver
	}
	var send []byte
	if q.Delivery != nil {
		send = appendSend(make([]byte, 0, sendSize(q.Delivery)), q.Delivery)
	}
	expected := uint64(q.ExpectedSequence + 1) // NoExpectation is -1
	remaining := uint64(0)
	if !q.Deadline.IsZero() {
		remaining = uint64(max(q.Deadline.Sub(now).Microseconds(), 1))
	}
	tried := uint64(0)
	if q.Again && !q.First.IsZero() {
		tried = uint64(max(now.Sub(q.First).Microseconds(), 1))
	}
	var who []byte
	roles := uint64(0)
	if say.principals && q.Principal != nil {
		who, roles = q.Principal.Bytes(), q.Roles
	}
	var room [journal.TraceContextBytes]byte
	trace := room[:0]
	if say.traces && q.Trace != nil {
		trace = journal.AppendTraceContext(trace, &q.Trace.TraceContext)
	}
	size := varintSize(correlation) + varintSize(kind) + bytesSize(len(q.Entity.Type)) + bytesSize(len(q.Entity.ID)) +
		bytesSize(len(q.Name)) + bytesSize(len(q.Payload)) + bytesSize(len(q.ID)) + varintSize(bit(q.ServerID)) +
		varintSize(expected) + varintSize(remaining) + varintSize(q.Route.Round) + varintSize(uint64(q.Shard)) + sendFieldSize(send) + varintSize(tried) +
		bytesSize(len(who)) + farSize(roles) + farBytesSize(len(trace))
	dst = protowire.AppendVarint(append(dst, tagItem), uint64(size))
	dst = appendVarint(dst, tagCorrelation, correlation)
	dst = appendVarint(dst, tagKind, kind)
	dst = appendBytes(dst, tagEntityType, q.Entity.Type)
	dst = appendBytes(dst, tagEntityID, q.Entity.ID)
	dst = appendBytes(dst, tagName, q.Name)
	dst = appendBytes(dst, tagAskPayload, q.Payload)
	dst = appendBytes(dst, tagCommandID, string(q.ID))
	dst = appendVarint(dst, tagServerID, bit(q.ServerID))
	dst = appendVarint(dst, tagExpected, expected)
	dst = appendVarint(dst, tagRemaining, remaining)
	dst = appendVarint(dst, tagRound, q.Route.Round)
	dst = appendVarint(dst, tagShard, uint64(q.Shard))
	dst = appendBytes(dst, tagSend, send)
	dst = appendVarint(dst, tagFirstTried, tried)
	dst = appendBytes(dst, tagPrincipal, who)
	dst = appendFar(dst, tagRoles, roles)
	return appendFarBytes(dst, tagTrace, trace)
}

// fill builds the request that an item describes. Entity id and command id
// share one allocation; the payload aliases the item's message.
func (a *wireRequest) fill(q *request.Request, names *names, callers *callers, scratch []byte, now time.Time) ([]byte, error) {
	switch a.kind {
	case wireCommand:
		q.Kind = request.Command
	case wireQuery:
		q.Kind = request.Query
	case wireStaleQuery:
		q.Kind = request.StaleQuery
	case wireDeliver:
		var err error
		q.Kind = request.Deliver
		if q.Delivery, err = parseSend(a.send, names); err != nil {
			return scratch, err
		}
	default:
		return scratch, fmt.Errorf("%w: request of kind %d", errMalformed, a.kind)
	}
	if len(a.principal) > 0 {
		var err error
		if q.Principal, err = callers.get(a.principal); err != nil {
			return scratch, err
		}
		q.Roles = a.roles
	}
	if len(a.trace) > 0 {
		in, err := journal.DecodeTraceContext(a.trace)
		if err != nil {
			return scratch, fmt.Errorf("%w: %w", errMalformed, err)
		}
		q.Trace = &request.Trace{TraceContext: in}
	}
	scratch = append(append(scratch[:0], a.entityID...), a.commandID...)
	joint := string(scratch)
	q.Entity = sharding.EntityID{Type: names.get(a.entityType), ID: joint[:len(a.entityID)]}
	q.ID, q.ServerID = journal.CommandID(joint[len(a.entityID):]), a.serverID
	q.Name, q.Payload = names.get(a.name), a.payload
	q.ExpectedSequence = int64(a.expected) - 1
	if q.ExpectedSequence < request.NoExpectation {
		return scratch, fmt.Errorf("%w: invalid expected sequence %d", errMalformed, a.expected)
	}
	if q.Kind.HasID() {
		q.First, q.Again = now.Add(-time.Duration(min(a.firstTried, uint64(longestAge/time.Microsecond)))*time.Microsecond), a.firstTried > 0
	}
	if a.remaining > 0 {
		q.Deadline = now.Add(time.Duration(min(a.remaining, uint64(longestDeadline/time.Microsecond))) * time.Microsecond)
	}
	return scratch, q.Entity.Validate()
}

// longestDeadline bounds the deadline that another node may request.
const longestDeadline = 10 * time.Minute

// longestAge bounds the age of the first attempt that another node may report.
const longestAge = 366 * 24 * time.Hour

// callers caches parsed principals. It is bounded and not safe for concurrent
// use.
type callers struct {
	known map[string]*principal.Principal
}

// maxCallers bounds the cached principals of a stream, to at most 1 MiB.
const maxCallers = 256

func (c *callers) get(b []byte) (*principal.Principal, error) {
	if p, ok := c.known[string(b)]; ok {
		return p, nil
	}
	p, err := principal.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if c.known == nil || len(c.known) >= maxCallers {
		c.known = make(map[string]*principal.Principal)
	}
	c.known[string(b)] = p
	return p, nil
}

// names interns strings that repeat, such as entity types. It is bounded and not
// safe for concurrent use.
type names struct{ known map[string]string }

func (n *names) get(b []byte) string {
	if s, ok := n.known[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) <= 64 && len(n.known) < 256 {
		if n.known == nil {
			n.known = make(map[string]string)
		}
		n.known[s] = s
	}
	return s
}
