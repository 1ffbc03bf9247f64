package entity

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// commandFrame appends the frames of a command for an entity of type t at the
// given sequence. The command is that of the request, or commandEnd if the
// node ends a run instead.
func commandFrame(f []byte, t *Type, at journal.Sequence, r *request.Request, env Env) []byte {
	name, payload := r.Name, r.Payload
	if r.Exec.End != nil {
		name, payload = commandEnd, endPayload(r.Exec.End)
	}
	f = abi.AppendSequence(f, uint64(at))
	f = abi.AppendName(f, name)
	f = abi.AppendPayload(f, payload)
	f = abi.AppendCommandID(f, string(r.ID))
	f = abi.AppendNow(f, env.Now)
	f = abi.AppendSeed(f, env.Seed)
	if made := timers.Of(r); made != nil {
		f = abi.AppendDue(f, made.Timer.Due)
	}
	if r.Delivery != nil && r.Delivery.Token != "" && r.Delivery.OnReply == "" { // the message reports the outcome of a send
		f = abi.AppendToken(f, []byte(r.Delivery.Token))
	}
	return abi.AppendSource(t.appendAbout(f, r), sourceOf(r))
}

// queryFrame appends the frames of a query.
func queryFrame(f []byte, t *Type, at journal.Sequence, r *request.Request, env Env) []byte {
	f = abi.AppendSequence(f, uint64(at))
	f = abi.AppendName(f, r.Name)
	f = abi.AppendPayload(f, r.Payload)
	return abi.AppendNow(t.appendAbout(f, r), env.Now)
}

// sourceOf returns the sender of a request.
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

// isInternal reports whether the command comes from a timer or another entity.
// The idempotency window does not keep its id, because the timer or the message
// number already prevents a second effect.
func isInternal(r *request.Request) bool {
	return timers.Of(r) != nil || r.Kind == request.Deliver || r.Kind == request.Redeliver
}
