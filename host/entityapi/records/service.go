// Package records tells what the commands of an entity did, a page at a time.
// It reads at this node where that leads the entity's shard, and at the node
// that does otherwise. It never writes, and keeps nothing between two calls.
package records

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"log/slog"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	listing "github.com/hostd/hostd/host/rpc/page"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// defaultPage is the page of a caller that asks for none.
	defaultPage = 100
	// pageBytes is where a page ends: with the record that takes it there.
	pageBytes = 256 << 10
	// longBytes is the size of a record above which it is shortened.
	longBytes = 128 << 10
	// longParts bounds the events, sends and timers of one that is.
	longParts = 1000
)

// Histories reads what entities that this node leads went through.
type Histories interface {
	// Span returns the first sequence of an entity that is kept, at least 1, and
	// its last, 0 for one without events.
	Span(id sharding.EntityID) (first, last journal.Sequence, err error)
	// Records calls fn for the entity's records in order, from the one that holds
	// the event with sequence from on; from 0, which only an entity has that lost
	// no event, from the first. The record is valid during fn. An error of fn ends
	// it and is returned as it is. It fails with a *journal.CutError where what is
	// asked for was cut.
	Records(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(at journal.Position, rec *journal.Record) error) error
	// Action is what an operator ordered with a record, empty where none did.
	Action(rec *journal.Record) (action, timer string)
}

// Service answers ReadRecords. All members are required, but for Histories:
// without them the call is unimplemented.
type Service struct {
	// Encoding finds how the payloads of an entity type are written.
	Encoding  func(ctx context.Context, entityType string) (request.Encoding, error)
	ShardOf   func(id sharding.EntityID) sharding.ShardID
	Histories Histories
	Proxy     *leaderproxy.Proxy
	Log       *slog.Logger
}

// errOlderNode: the node that leads the shard cannot be asked for this.
var errOlderNode = connect.NewError(connect.CodeUnimplemented,
	errors.New("the node that leads the entity's shard is of a release that does not tell records; its events can be read"))

// ReadRecords returns a page of an entity's records.
func (s *Service) ReadRecords(ctx context.Context, r *connect.Request[entityv1.ReadRecordsRequest]) (*connect.Response[entityv1.ReadRecordsResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	p, err := s.page(ctx, id, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	res, err := leaderproxy.Do(ctx, s.Proxy, s.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ReadRecordsResponse], error) {
			if leader != nil {
				res, err := leader.ReadRecords(ctx, connect.NewRequest(r.Msg))
				if connect.CodeOf(err) == connect.CodeUnimplemented {
					err = errOlderNode
				}
				return res, err
			}
			out, err := p.read(ctx)
			return connect.NewResponse(out), err
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(res.Msg), nil
}

// page is one that is asked for.
type page struct {
	*Service
	id     sharding.EntityID
	kind   wire.PayloadKind
	size   int
	newest bool             // first
	from   journal.Sequence // of a page that follows no other
	after  *place           // of one that does
}

func (s *Service) page(ctx context.Context, id sharding.EntityID, m *entityv1.ReadRecordsRequest) (*page, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if s.Histories == nil {
		return nil, request.ErrUnsupported
	}
	p := &page{Service: s, id: id, kind: wire.JSONPayload, size: int(m.GetPageSize()), newest: m.GetNewestFirst(), from: journal.Sequence(m.GetFromSequence())}
	switch encoding, err := s.Encoding(ctx, id.Type); {
	case err != nil:
		return nil, err
	case encoding == request.Bytes:
		p.kind = wire.DataPayload
	}
	if p.size == 0 {
		p.size = defaultPage
	}
	if m.GetPageToken() != "" {
		var err error
		if p.after, err = p.parse(m.GetPageToken()); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// place is where a page ended: at a record, and the sequence from which the
// next one is read.
type place struct {
	sequence journal.Sequence
	at       journal.Position
}

// filter tells pages apart that do not follow one another.
func (p *page) filter() uint32 {
	h := fnv.New32a()
	h.Write([]byte(p.id.Type + "\x00" + p.id.ID))
	if p.newest {
		h.Write([]byte{0})
	}
	return h.Sum32()
}

const placeBytes = 8 + 8 + 4

// token hides a place from callers, who must not build on its form.
func (p *page) token(at place) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, placeBytes), uint64(at.sequence))
	b = binary.BigEndian.AppendUint64(b, at.at.Index)
	return listing.Token(p.filter(), binary.BigEndian.AppendUint32(b, at.at.Ordinal))
}

func (p *page) parse(token string) (*place, error) {
	b, err := listing.Parse(token, p.filter())
	if err != nil || len(b) != placeBytes {
		return nil, status.Argument("the page token is not one of this entity and direction")
	}
	return &place{
		sequence: journal.Sequence(binary.BigEndian.Uint64(b)),
		at:       journal.Position{Index: binary.BigEndian.Uint64(b[8:]), Ordinal: binary.BigEndian.Uint32(b[16:])},
	}, nil
}
