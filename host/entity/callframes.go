package entity

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// commandFrame appends a command of an entity of the type that is at a sequence.
func commandFrame(f []byte, t *Type, at journal.Sequence, r *request.Request, env Env) []byte {
	f = abi.AppendSequence(f, uint64(at))
	f = abi.AppendName(f, r.Name)
	f = abi.AppendPayload(f, r.Payload)
	f = abi.AppendCommandID(f, string(r.ID))
	f = abi.AppendNow(f, env.Now)
	f = abi.AppendSeed(f, env.Seed)
	if made := timers.Of(r); made != nil {
		f = abi.AppendDue(f, made.Timer.Due)
	}
	return abi.AppendSource(t.AppendAbout(f, r), sourceOf(r))
}

// queryFrame appends a query, the same.
func queryFrame(f []byte, t *Type, at journal.Sequence, r *request.Request, env Env) []byte {
	f = abi.AppendSequence(f, uint64(at))
	f = abi.AppendName(f, r.Name)
	f = abi.AppendPayload(f, r.Payload)
	return abi.AppendNow(t.AppendAbout(f, r), env.Now)
}

// sourceOf says who sent a request.
func sourceOf(r *request.Request) abi.Source {
	if timers.Of(r) != nil {
		return abi.Source{Kind: abi.SourceTimer}
	}
	if isInternal(r) {
		from := r.Delivery.Source
		return abi.Source{Kind: abi.SourceEntity, EntityType: []byte(from.Type), EntityID: []byte(from.ID)}
	}
	return abi.Source{Kind: abi.SourceClient}
}

// isInternal reports that the command comes from within: its id is not
// remembered, for something else keeps it from having its effect again.
func isInternal(r *request.Request) bool {
	return timers.Of(r) != nil || r.Kind == request.Deliver || r.Kind == request.Redeliver
}
