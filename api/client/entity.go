package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/jsonvalue"
)

// Command is a command to an entity.
type Command struct {
	EntityType string
	EntityID   string
	Name       string
	// Data is the payload: JSON text if the type has the encoding "json", for
	// which empty means null.
	Data []byte
	// ID is the command's id, its idempotency key; if it is empty, the client
	// generates one. Sending the same command again with the same ID has no second
	// effect.
	ID string
	// FirstTried is when the caller first sent the command with this ID, in
	// an earlier call whose outcome it does not know; zero if there was no
	// such call. An entity that may have forgotten that attempt then rejects
	// this attempt with CodeAborted instead of running the command twice.
	// The client itself keeps track of the attempts within a call.
	FirstTried time.Time
	// ExpectedSequence, if set, must be the entity's sequence.
	ExpectedSequence *uint64
}

// Reply is the outcome of a command, which is durable.
type Reply struct {
	Data       []byte
	Sequence   uint64 // sequence of the entity after the command
	EventCount int
	Duplicate  bool   // this is the stored reply of an earlier command with this ID
	NodeID     string // the node that answered
	Fuel       uint64 // fuel that the command used; 0 for a stored reply
}

// NewCommandID returns a new command id: 16 random bytes in hex.
func NewCommandID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Send runs one command. It retries with the same ID as long as no node can
// report the outcome. Errors: *RejectedError, *SequenceMismatchError, *Error.
// CodeAborted means that an earlier attempt may have taken effect so long ago
// that the entity has forgotten it.
func (c *Client) Send(ctx context.Context, cmd Command) (Reply, error) {
	if cmd.ID == "" {
		cmd.ID = NewCommandID()
	}
	about := route{cmd.EntityType, cmd.EntityID}
	first := cmd.FirstTried
	res, n, err := callAbout(ctx, c, about, c.opts.Timeout, &entityv1.SendCommandRequest{
		EntityType:       cmd.EntityType,
		EntityId:         cmd.EntityID,
		Command:          cmd.Name,
		Payload:          &entityv1.SendCommandRequest_Data{Data: cmd.Data},
		CommandId:        cmd.ID,
		ExpectedSequence: cmd.ExpectedSequence,
	}, func(n *node, ctx context.Context, r *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
		now := time.Now()
		r.Msg.FirstAttemptAge = nil
		if age := ageOf(first, now); age > 0 {
			r.Msg.FirstAttemptAge = durationpb.New(age)
		}
		res, err := n.entities.SendCommand(ctx, r)
		if first.IsZero() && err != nil && judge(err).carried {
			first = now
		}
		return res, err
	})
	if err != nil {
		return Reply{}, err
	}
	c.answeredBy(about, n, res.GetNodeId())
	return Reply{
		Data:       payload(res.GetData(), res.GetJson()),
		Sequence:   res.GetSequence(),
		EventCount: int(res.GetEventCount()),
		Duplicate:  res.GetDuplicate(),
		NodeID:     res.GetNodeId(),
		Fuel:       res.GetFuel(),
	}, nil
}

// ageOf returns the time since the first attempt in whole milliseconds, at least
// one; 0 if there was none.
func ageOf(first, now time.Time) time.Duration {
	if first.IsZero() {
		return 0
	}
	return max(now.Sub(first)+time.Millisecond-1, time.Millisecond).Truncate(time.Millisecond)
}

// Query is a query on an entity.
type Query struct {
	EntityType string
	EntityID   string
	Name       string
	Data       []byte
	// Stale makes the node answer from its memory without confirming that this is
	// the latest state.
	Stale bool
}

// Answer is the result of a query.
type Answer struct {
	Data     []byte
	Sequence uint64 // sequence of the entity when the query ran
	Fuel     uint64 // fuel that the query used
}

// Query runs one query.
func (c *Client) Query(ctx context.Context, q Query) (Answer, error) {
	consistency := entityv1.Consistency_LINEARIZABLE
	if q.Stale {
		consistency = entityv1.Consistency_STALE
	}
	res, _, err := callAbout(ctx, c, route{q.EntityType, q.EntityID}, c.opts.Timeout, &entityv1.QueryEntityRequest{
		EntityType:  q.EntityType,
		EntityId:    q.EntityID,
		Query:       q.Name,
		Payload:     &entityv1.QueryEntityRequest_Data{Data: q.Data},
		Consistency: consistency,
	}, func(n *node, ctx context.Context, r *connect.Request[entityv1.QueryEntityRequest]) (*connect.Response[entityv1.QueryEntityResponse], error) {
		return n.entities.QueryEntity(ctx, r)
	})
	if err != nil {
		return Answer{}, err
	}
	return Answer{Data: payload(res.GetData(), res.GetJson()), Sequence: res.GetSequence(), Fuel: res.GetFuel()}, nil
}

// Entity describes an entity; see GetEntityResponse for its fields.
func (c *Client) Entity(ctx context.Context, entityType, entityID string) (*entityv1.GetEntityResponse, error) {
	res, _, err := callAbout(ctx, c, route{entityType, entityID}, c.opts.Timeout, &entityv1.GetEntityRequest{EntityType: entityType, EntityId: entityID},
		func(n *node, ctx context.Context, r *connect.Request[entityv1.GetEntityRequest]) (*connect.Response[entityv1.GetEntityResponse], error) {
			return n.entities.GetEntity(ctx, r)
		})
	return res, err
}

// List iterates over the entities that match, page by page, starting at the
// request's page token. It does not change the request. An error ends it.
func (c *Client) List(ctx context.Context, req *entityv1.ListEntitiesRequest) iter.Seq2[*entityv1.ListEntitiesResponse_Entity, error] {
	return func(yield func(*entityv1.ListEntitiesResponse_Entity, error) bool) {
		token := req.GetPageToken()
		for {
			page, err := c.ListPage(ctx, &entityv1.ListEntitiesRequest{
				EntityType: req.GetEntityType(), IdPrefix: req.GetIdPrefix(), ShardId: req.GetShardId(),
				ResidentOnly: req.GetResidentOnly(), PageSize: req.GetPageSize(), PageToken: token, Status: req.GetStatus(),
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range page.GetEntities() {
				if !yield(e, nil) {
					return
				}
			}
			if token = page.GetNextPageToken(); token == "" {
				return
			}
		}
	}
}

// ListPage returns one page of entities.
func (c *Client) ListPage(ctx context.Context, req *entityv1.ListEntitiesRequest) (*entityv1.ListEntitiesResponse, error) {
	return call(ctx, c, c.opts.Timeout, req,
		func(n *node, ctx context.Context, r *connect.Request[entityv1.ListEntitiesRequest]) (*connect.Response[entityv1.ListEntitiesResponse], error) {
			return n.entities.ListEntities(ctx, r)
		})
}

// payload returns the bytes of an answer. A server may answer with the json
// member although data was requested.
func payload(data []byte, v *structpb.Value) []byte {
	if v == nil {
		return data
	}
	text, err := jsonvalue.Append(nil, v)
	if err != nil {
		return nil
	}
	return text
}
