package entityapi

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// defaultRecordPage is the page size if the caller sets none.
	defaultRecordPage = 100
	// recordPageBytes is the size at which a page ends; the record that reaches it is
	// still included.
	recordPageBytes = 256 << 10
	// longRecordBytes is the size of a record above which it is shortened.
	longRecordBytes = 128 << 10
	// longRecordParts limits the events, sends and timers of a shortened record.
	longRecordParts = 1000
)

// recordHistories reads the histories of entities that this node leads.
type recordHistories interface {
	// Span returns the first stored sequence of an entity, at least 1, and its
	// last sequence, which is 0 if the entity has no events.
	Span(id sharding.EntityID) (first, last journal.Sequence, err error)
	// Records calls fn for the entity's records in order, from the record that
	// contains the event with sequence from. If from is 0, which is allowed only
	// if no event was compacted away, it begins with the first record. The
	// record is valid only during fn. An error of fn stops Records and is
	// returned unchanged. Records fails with a *journal.TruncatedError if from
	// was compacted away.
	Records(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(at journal.Position, rec *journal.Record) error) error
	// Action returns the operator action that made a record, or "" if there is
	// none.
	Action(rec *journal.Record) (action, timer string)
}

// errRecordsNotReturned: the leader's release does not support the call.
var errRecordsNotReturned = connect.NewError(connect.CodeUnimplemented,
	errors.New("the release of the node that leads the entity's shard does not return records; read its events instead"))

// ReadRecords returns a page of an entity's records, which describe the effects
// of its commands. It reads them on the node that leads the entity's shard.
func (s *handler) ReadRecords(ctx context.Context, r *connect.Request[entityv1.ReadRecordsRequest]) (*connect.Response[entityv1.ReadRecordsResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	p, err := s.recordPage(ctx, id, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	res, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ReadRecordsResponse], error) {
			if leader != nil {
				res, err := leader.ReadRecords(ctx, connect.NewRequest(r.Msg))
				if connect.CodeOf(err) == connect.CodeUnimplemented {
					err = errRecordsNotReturned
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

// recordPage is a requested page.
type recordPage struct {
	*handler
	id     sharding.EntityID
	kind   wire.PayloadKind
	size   int
	newest bool             // the newest records come first
	from   journal.Sequence // where the first page begins
	after  *recordPlace     // where a page with a token begins
}

func (s *handler) recordPage(ctx context.Context, id sharding.EntityID, m *entityv1.ReadRecordsRequest) (*recordPage, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if s.Records == nil {
		return nil, request.ErrUnsupported
	}
	p := &recordPage{handler: s, id: id, kind: wire.JSONPayload, size: int(m.GetPageSize()), newest: m.GetNewestFirst(), from: journal.Sequence(m.GetFromSequence())}
	switch encoding, err := s.Types.Encoding(ctx, id.Type); {
	case err != nil:
		return nil, err
	case encoding == request.Bytes:
		p.kind = wire.DataPayload
	}
	if p.size == 0 {
		p.size = defaultRecordPage
	}
	if m.GetPageToken() != "" {
		var err error
		if p.after, err = p.parse(m.GetPageToken()); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// recordPlace is where a page ended: its last record, and the sequence from which to
// read the next page.
type recordPlace struct {
	sequence journal.Sequence
	at       journal.Position
}

// filter hashes the entity and the direction, so that tokens of different
// listings differ.
func (p *recordPage) filter() uint32 {
	h := fnv.New32a()
	h.Write([]byte(p.id.Type + "\x00" + p.id.ID))
	if p.newest {
		h.Write([]byte{0})
	}
	return h.Sum32()
}

const recordPlaceBytes = 8 + 8 + 4

// token encodes a place as an opaque token.
func (p *recordPage) token(at recordPlace) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, recordPlaceBytes), uint64(at.sequence))
	b = binary.BigEndian.AppendUint64(b, at.at.Index)
	return page.Token(p.filter(), binary.BigEndian.AppendUint32(b, at.at.Ordinal))
}

func (p *recordPage) parse(token string) (*recordPlace, error) {
	b, err := page.Parse(token, p.filter())
	if err != nil || len(b) != recordPlaceBytes {
		return nil, status.Argument("the page token does not belong to this entity and direction")
	}
	return &recordPlace{
		sequence: journal.Sequence(binary.BigEndian.Uint64(b)),
		at:       journal.Position{Index: binary.BigEndian.Uint64(b[8:]), Ordinal: binary.BigEndian.Uint32(b[16:])},
	}, nil
}
