package debugging

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/debugging/entityfile"
)

// baseLooks limits how often a state is requested, because events may be
// truncated at the same time.
const baseLooks = 8

// base returns the state that the exported history of an entity starts from;
// nil if all of its events are retained. It is the earliest state that the
// module of the file made, because only the module that made a snapshot can
// be relied on to read it. For a durable-state type, it is the earliest
// retained state. If there is none, it is the newest state.
func base(ctx context.Context, s *cli.Session, about *entityfile.About, module *structpb.Struct) (*entityfile.Base, error) {
	at, err := firstKept(ctx, s.Client, about)
	if err != nil || at <= 1 {
		return nil, err
	}
	durable := keepsLatest(module, about.EntityType)
	for range baseLooks {
		state, err := stateAt(ctx, s, about, &at)
		var cut *client.TruncatedError
		switch {
		case errors.As(err, &cut) && cut.First > at:
			at = cut.First
			continue
		case errors.As(err, &cut):
		case err != nil:
			return nil, err
		case state.GetModuleDigest() == about.ModuleDigest:
			return baseOf(state)
		case durable:
			b, err := baseOf(state)
			if err == nil {
				b.StateVersion, err = versionAt(ctx, s.Client, about, state.GetSequence())
			}
			return b, err
		}
		break
	}
	state, err := stateAt(ctx, s, about, nil)
	if err != nil {
		return nil, err
	}
	if state.GetModuleDigest() != about.ModuleDigest {
		return nil, errors.New("the active module changed during the call: try again")
	}
	return baseOf(state)
}

// firstKept returns the sequence of the first retained event.
func firstKept(ctx context.Context, c *client.Client, about *entityfile.About) (uint64, error) {
	for _, err := range c.ReadEvents(ctx, client.EventRange{EntityType: about.EntityType, EntityID: about.EntityID, To: 1}) {
		var cut *client.TruncatedError
		if errors.As(err, &cut) {
			return cut.First, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 1, nil
}

// versionAt returns the version of a durable state from its event.
func versionAt(ctx context.Context, c *client.Client, about *entityfile.About, at uint64) (int, error) {
	for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: about.EntityType, EntityID: about.EntityID, From: at, To: at}) {
		return manifest.StateEventVersion(e.Type), err
	}
	return 0, nil
}

// keepsLatest reports whether the events of a type are its states.
func keepsLatest(module *structpb.Struct, entityType string) bool {
	for _, v := range module.GetFields()["entityTypes"].GetListValue().GetValues() {
		t := v.GetStructValue().GetFields()
		if t["name"].GetStringValue() == entityType {
			return t["kind"].GetStringValue() == "durable-state"
		}
	}
	return false
}

// stateAt returns the state after the event at; nil means the newest state.
func stateAt(ctx context.Context, s *cli.Session, about *entityfile.About, at *uint64) (*entityv1.GetStateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	res, err := s.EntityService.GetState(ctx, connect.NewRequest(&entityv1.GetStateRequest{EntityType: about.EntityType, EntityId: about.EntityID, AtSequence: at}))
	if err == nil {
		return res.Msg, nil
	}
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return nil, err
	}
	if truncated := (*client.TruncatedError)(nil); errors.As(client.FromConnect(err), &truncated) {
		return nil, truncated
	}
	return nil, &client.Error{Code: wire.Code(), Message: wire.Message()}
}

// baseOf converts a state to the module's bytes. JSON may differ from them in
// white space and in the order of members.
func baseOf(state *entityv1.GetStateResponse) (*entityfile.Base, error) {
	b := &entityfile.Base{Sequence: state.GetSequence(), State: state.GetData()}
	v := state.GetJson()
	if v == nil {
		return b, nil
	}
	var err error
	b.State, err = jsonvalue.Append(nil, v)
	return b, err
}
