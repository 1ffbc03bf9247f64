package moduleapi

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// maxModuleBytes limits the size of a module, however it is uploaded. The
// setting max-module-bytes, which cannot be higher, may limit it further.
const maxModuleBytes = 32 << 20

// Options configure the ModuleService of a node. Modules, Types, Entities,
// Proxy, Streams, Uploads and Log are required. If another field is nil, the
// calls that need it are unimplemented, unless the comment of the field says
// otherwise.
type Options struct {
	Modules       Modules
	Types         Types
	Entities      shardCounter
	Verifications verifications
	Compatibility compatibility // if nil, activations are not checked
	Timers        timers        // if nil, activations do not warn about timers
	Rollouts      rollouts

	Proxy   *leaderproxy.Proxy
	Streams *admission.Streams
	Uploads *admission.Uploads
	Auth    *authorize.Authorizer // if nil, every caller may do everything
	Log     *slog.Logger
}

// shardCounter counts the data shards of the cluster, which are numbered from 1.
type shardCounter interface{ Shards() uint32 }

// timers finds pending timers of a type on all nodes.
type timers interface {
	// FindUnserved returns the timers that call commands for which has returns false.
	FindUnserved(ctx context.Context, entityType string, has func(command string) bool) (entityapi.UnservedTimers, error)
}

// Handler is the ModuleService of a node. It is safe for concurrent use.
type Handler struct{ *handler }

var _ modulev1connect.ModuleServiceHandler = Handler{}

// unserved answers calls for which Options lacks what they need. It is not
// embedded, because embedding would hide that a method is missing.
var unserved modulev1connect.UnimplementedModuleServiceHandler

// NewHandler makes the ModuleService of a node. It starts nothing.
func NewHandler(o Options) Handler {
	return Handler{&handler{Options: o, owners: owners{o.Modules, o.Auth}}}
}

// handler implements the ModuleService.
type handler struct {
	Options
	owners owners
}

// Owners returns the owners of entity types.
func (s *handler) Owners() clusterapi.TypeOwners { return s.owners }

// UploadModule stores a module that arrives in one message. The call already holds its
// upload turn: admission.Bodies took it before it read the message.
func (s *handler) UploadModule(ctx context.Context, r *connect.Request[modulev1.UploadModuleRequest]) (*connect.Response[modulev1.UploadModuleResponse], error) {
	m, remarks, err := s.upload(ctx, modules.Upload{Wasm: r.Msg.GetWasm(), Signature: r.Msg.GetSignature()}, r.Msg.GetActivate(), r.Msg.GetForce())
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&modulev1.UploadModuleResponse{Digest: m.Digest.String(), EntityTypes: m.EntityTypes, Warnings: remarks}), nil
}

// UploadModuleStream stores a module that arrives in several messages.
func (s *handler) UploadModuleStream(ctx context.Context, stream *connect.ClientStream[modulev1.UploadModuleStreamRequest]) (*connect.Response[modulev1.UploadModuleStreamResponse], error) {
	leave, err := s.Uploads.Enter(ctx)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	defer leave()
	var wasm, signature []byte
	activate, force := false, false
	for first := true; stream.Receive(); first = false {
		piece := stream.Msg()
		switch {
		case first: // only the first message is recorded in the audit log
			activate, force = piece.GetActivate(), piece.GetForce()
		case piece.GetActivate() && !activate || piece.GetForce() && !force:
			return nil, status.Public(s.Log, status.Argument("activate and force must be in the first message"))
		}
		if len(wasm)+len(piece.GetWasm()) > maxModuleBytes {
			return nil, status.Public(s.Log, status.Argument(fmt.Sprintf("the module is longer than %d bytes", maxModuleBytes)))
		}
		wasm = append(wasm, piece.GetWasm()...)
		if more := piece.GetSignature(); len(more) > 0 {
			if len(signature) > 0 {
				return nil, status.Public(s.Log, status.Argument("the signature is set twice"))
			}
			signature = more
		}
	}
	if err := stream.Err(); err != nil {
		return nil, status.Public(s.Log, err)
	}
	if len(wasm) == 0 {
		return nil, status.Public(s.Log, status.Argument("the module is empty"))
	}
	m, remarks, err := s.upload(ctx, modules.Upload{Wasm: wasm, Signature: signature}, activate, force)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&modulev1.UploadModuleStreamResponse{Digest: m.Digest.String(), EntityTypes: m.EntityTypes, Warnings: remarks}), nil
}

func (s *handler) upload(ctx context.Context, u modules.Upload, activate, force bool) (m modules.Module, remarks []string, err error) {
	u.By, u.Resign = uploader(ctx), s.mayDeploy
	m, err = s.Modules.Upload(ctx, u)
	if err != nil || !activate {
		return m, nil, err
	}
	if err := s.mayDeploy(ctx, m.EntityTypes); err != nil {
		return m, nil, fmt.Errorf("the module is stored, but not activated for any of its types: %w", err)
	}
	fitted := make([]replacementCheck, len(m.EntityTypes))
	for i, t := range m.EntityTypes {
		if fitted[i], err = s.checkReplacement(ctx, t, m.Digest, force, false); err != nil {
			return m, nil, fmt.Errorf("the module is stored, but not activated for any of its types: %w", err)
		}
		remarks = append(remarks, fitted[i].warnings...)
	}
	truncated := modules.Truncated{Prove: s.Compatibility != nil, Force: force, Warn: func(text string) { remarks = append(remarks, text) }}
	for i, t := range m.EntityTypes {
		if _, err := s.Modules.Activate(ctx, modules.Activation{EntityType: t, Digest: m.Digest, By: authorize.Caller(ctx), ForcedBy: fitted[i].forcedBy, Entities: s, Approver: s.owners.approver(), Truncated: truncated}); err != nil {
			return m, nil, fmt.Errorf("activate %s: %w", t, err)
		}
		remarks = append(remarks, foreignSends(ctx, s.Types, t)...)
	}
	return m, remarks, nil
}

// uploader returns the subject that uploads, or "" if it is unknown.
func uploader(ctx context.Context) string {
	p := authn.Of(ctx).Principal
	if subject := string(p.Kind) + ":" + p.Name; access.CheckOwner(subject) == nil {
		return subject
	}
	return ""
}

// DeleteModule deletes a stored module.
func (s *handler) DeleteModule(ctx context.Context, r *connect.Request[modulev1.DeleteModuleRequest]) (*connect.Response[modulev1.DeleteModuleResponse], error) {
	digest, err := parseDigest(r.Msg.GetDigest())
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	if err := s.Modules.Remove(ctx, digest, s.mayDeploy); err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&modulev1.DeleteModuleResponse{}), nil
}

// GetQuotas returns the upload quotas of the caller and how much of them is
// used.
func (s *handler) GetQuotas(ctx context.Context, _ *connect.Request[modulev1.GetQuotasRequest]) (*connect.Response[modulev1.GetQuotasResponse], error) {
	q := s.Modules.Quotas(uploader(ctx))
	out := &modulev1.GetQuotasResponse{Used: amountsMessage(q.Used), Limit: amountsMessage(q.Limit)}
	if q.Retention > 0 {
		out.Retention = durationpb.New(q.Retention)
	}
	return connect.NewResponse(out), nil
}

// mayDeploy returns an error unless the caller may deploy all of the types and
// owns all types with an owner.
func (s *handler) mayDeploy(ctx context.Context, entityTypes []string) error {
	if s.owners.roles == nil {
		return nil
	}
	for _, t := range entityTypes {
		if err := s.owners.roles.Deploy(ctx, t); err != nil {
			return err
		}
		if err := s.owners.check(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// mayRun returns an error unless the caller may activate the module for the
// type, or run it on the type's entities in any other way. Both require the
// same rights, because a module sees the entities it runs on, and the caller
// sees the result.
func (o owners) mayRun(ctx context.Context, entityType string, digest journal.Digest) error {
	if o.roles == nil {
		return nil
	}
	m, err := o.modules.Get(ctx, digest)
	if err != nil {
		return err
	}
	owner, err := o.Owner(ctx, entityType)
	if err == nil {
		_, err = o.Approve(ctx, modules.Rebinding{EntityType: entityType, Owner: owner, Types: m.EntityTypes})
	}
	return err
}

// listingKey is a sort key that puts the newest module first.
func listingKey(m *modules.Module) string {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(m.Digest)), ^uint64(m.UploadedAt.UnixNano()))
	return string(append(key, m.Digest[:]...))
}

// ListModules lists the stored modules in pages.
func (s *handler) ListModules(ctx context.Context, r *connect.Request[modulev1.ListModulesRequest]) (*connect.Response[modulev1.ListModulesResponse], error) {
	stored, err := s.Modules.List(ctx)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	slices.SortFunc(stored, func(a, b modules.Module) int { return strings.Compare(listingKey(&a), listingKey(&b)) })
	out := &modulev1.ListModulesResponse{}
	out.Modules, out.NextPageToken, err = page.Of(r.Msg, page.Filter("modules"), stored, listingKey, func(m *modules.Module) *modulev1.Module { return s.describe(ctx, m) })
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

// GetModule describes one module.
func (s *handler) GetModule(ctx context.Context, r *connect.Request[modulev1.GetModuleRequest]) (*connect.Response[modulev1.GetModuleResponse], error) {
	var digest journal.Digest
	if entityType := r.Msg.GetEntityType(); entityType != "" {
		t, err := s.Types.Lookup(ctx, entityType)
		if err != nil {
			return nil, status.Public(s.Log, err)
		}
		digest = t.Module
	} else {
		var err error
		if digest, err = parseDigest(r.Msg.GetDigest()); err != nil {
			return nil, status.Public(s.Log, err)
		}
	}
	m, err := s.Modules.Get(ctx, digest)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out := &modulev1.GetModuleResponse{Module: s.describe(ctx, &m)}
	if manifest, ok := jsonvalue.ParseAnswer(m.Manifest); ok {
		out.Manifest = manifest.GetStructValue()
	}
	return connect.NewResponse(out), nil
}

// DownloadModule streams the bytes of a module. It holds one chunk at a time, so that
// a client that reads slowly costs no more memory than any other stream.
func (s *handler) DownloadModule(ctx context.Context, r *connect.Request[modulev1.DownloadModuleRequest], stream *connect.ServerStream[modulev1.DownloadModuleResponse]) error {
	digest, err := parseDigest(r.Msg.GetDigest())
	if err != nil {
		return status.Public(s.Log, err)
	}
	guard, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer guard.Leave()
	if err := s.Modules.Download(ctx, digest, &downloadWriter{stream, s.Streams, guard}); err != nil {
		return status.Public(s.Log, err)
	}
	return nil
}

// downloadWriter sends each write as a message.
type downloadWriter struct {
	stream *connect.ServerStream[modulev1.DownloadModuleResponse]
	all    *admission.Streams
	guard  *admission.Stream
}

// Write implements io.Writer.
func (w *downloadWriter) Write(b []byte) (int, error) {
	if w.all.IsStopping() {
		return 0, admission.ErrStopping
	}
	w.guard.BeginWrite()
	defer w.guard.EndWrite()
	return len(b), w.stream.Send(&modulev1.DownloadModuleResponse{Wasm: b})
}

// ActivateModule makes a module serve an entity type.
func (s *handler) ActivateModule(ctx context.Context, r *connect.Request[modulev1.ActivateModuleRequest]) (*connect.Response[modulev1.ActivateModuleResponse], error) {
	if err := sharding.ValidateEntityType(r.Msg.GetEntityType()); err != nil {
		return nil, status.Public(s.Log, err)
	}
	digest, err := parseDigest(r.Msg.GetDigest())
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	t := r.Msg.GetEntityType()
	if err := s.owners.mayRun(ctx, t, digest); err != nil {
		return nil, status.Public(s.Log, err)
	}
	if r.Msg.GetRollout() != nil {
		return s.begin(ctx, r.Msg, digest)
	}
	fitted, err := s.checkReplacement(ctx, t, digest, r.Msg.GetForce(), r.Msg.GetAcceptDifferences())
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	truncated := modules.Truncated{Prove: s.Compatibility != nil, Later: true, Accept: r.Msg.GetAcceptDifferences(), Force: r.Msg.GetForce(), Warn: func(text string) { fitted.warnings = append(fitted.warnings, text) }}
	now, err := s.Modules.Activate(ctx, modules.Activation{
		EntityType: t, Digest: digest, Limits: limitsOf(r.Msg.GetLimits()), By: authorize.Caller(ctx), ForcedBy: fitted.forcedBy, Entities: s, Approver: s.owners.approver(), Truncated: truncated,
	})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out := &modulev1.ActivateModuleResponse{Revision: now.Revision, Warnings: append(fitted.warnings, foreignSends(ctx, s.Types, t)...)}
	if now.Verifying {
		out.State = modulev1.Rollout_STATE_VERIFYING
	}
	return connect.NewResponse(out), nil
}

// changeKinds has the kinds of the API by the stored kinds. Their names may differ,
// because stored names never change.
var changeKinds = map[meta.ChangeKind]modulev1.ActivationChange_Kind{
	meta.ChangeActivate: modulev1.ActivationChange_KIND_ACTIVATE,
	meta.ChangeLimits:   modulev1.ActivationChange_KIND_LIMITS,
	meta.ChangeRollback: modulev1.ActivationChange_KIND_ROLLBACK,
	meta.ChangeCanary:   modulev1.ActivationChange_KIND_CANARY,
	meta.ChangePromote:  modulev1.ActivationChange_KIND_PROMOTE,
	meta.ChangeAbort:    modulev1.ActivationChange_KIND_ABORT,
}

// GetActivationHistory lists the modules that have served an entity type, newest first.
func (s *handler) GetActivationHistory(ctx context.Context, r *connect.Request[modulev1.GetActivationHistoryRequest]) (*connect.Response[modulev1.GetActivationHistoryResponse], error) {
	changes, err := s.Modules.Changes(ctx, r.Msg.GetEntityType())
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out := &modulev1.GetActivationHistoryResponse{}
	for _, c := range slices.Backward(changes) {
		out.Changes = append(out.Changes, &modulev1.ActivationChange{
			Revision: c.Revision, ChangedAt: timestamppb.New(c.ChangedAt), Digest: c.Digest.String(), ChangedBy: c.ChangedBy, Forced: c.Forced, RolledBackRevision: c.RolledBackRevision, Share: c.Share, Prefix: c.Prefix,
			Kind: changeKinds[c.Kind],
		})
	}
	return connect.NewResponse(out), nil
}

// SetOwner changes the owner of an entity type.
func (s *handler) SetOwner(ctx context.Context, r *connect.Request[modulev1.SetOwnerRequest]) (*connect.Response[modulev1.SetOwnerResponse], error) {
	if owner := r.Msg.GetOwner(); owner != "" {
		if err := access.CheckOwner(owner); err != nil {
			return nil, status.Public(s.Log, &clusterapi.InvalidRoleError{Reason: err.Error()})
		}
	}
	err := s.Modules.SetOwner(ctx, r.Msg.GetEntityType(), r.Msg.GetOwner(), func(ctx context.Context, was string) error {
		if s.owners.roles == nil {
			return nil
		}
		if _, err := s.owners.roles.Own(ctx, r.Msg.GetEntityType(), was); err != nil || r.Msg.GetOwner() == "" {
			return err
		}
		// Types of one owner accept each other's messages, so a caller must not
		// assign a type to an owner that it does not control.
		if _, err := s.owners.roles.Own(ctx, r.Msg.GetEntityType(), r.Msg.GetOwner()); err != nil {
			return fmt.Errorf("only a caller with the verb admin on the type can assign it to a different subject: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&modulev1.SetOwnerResponse{}), nil
}

func (s *handler) describe(ctx context.Context, m *modules.Module) *modulev1.Module {
	out := &modulev1.Module{
		Digest:         m.Digest.String(),
		Name:           m.Name,
		Version:        m.Version,
		SizeBytes:      uint64(m.SizeBytes),
		UploadedAt:     timestamppb.New(m.UploadedAt),
		EntityTypes:    slices.Clone(m.EntityTypes),
		SignedBy:       m.SignedBy,
		SignatureFault: m.SignatureFault,
		Parts:          partMessages(m.Parts),
	}
	if !m.UnusedSince.IsZero() {
		out.UnusedSince = timestamppb.New(m.UnusedSince)
	}
	for _, name := range m.EntityTypes {
		if v, ok := m.Verified[name]; ok {
			out.Verifications = append(out.Verifications, &modulev1.Verification{
				EntityType: name, Revision: v.Revision, VerifiedAt: timestamppb.New(v.At), VerifiedBy: v.By, All: v.All, Entities: v.Entities, Events: v.Events,
				Differences: v.Differences, Faults: v.Faults, UncomparedEntities: v.Uncompared, TruncatedEntities: v.Truncated,
			})
		}
		if t, err := s.Types.Lookup(ctx, name); err == nil && t.Module == m.Digest {
			out.ActiveFor = append(out.ActiveFor, name)
			out.Activations = append(out.Activations, &modulev1.Activation{
				EntityType: name, Revision: t.Revision, Limits: showLimits(t.Limits), Sends: showPatterns(t.Sends), AcceptsFrom: showPatterns(t.AcceptsFrom), Owner: m.Owners[name], ForcedBy: t.ForcedBy,
			})
		}
	}
	return out
}

func limitsOf(l *modulev1.Limits) *modules.Limits {
	if l == nil {
		return nil
	}
	return &modules.Limits{
		CommandFuel: int64(l.GetCommandFuel()), QueryFuel: int64(l.GetQueryFuel()),
		MaxEvents: int64(l.GetMaxEvents()), EventBytes: int64(l.GetEventBytes()), ReplyBytes: int64(l.GetReplyBytes()),
		MemoryBytes: int64(l.GetMemoryBytes()), TypeMemoryBytes: int64(l.GetTypeMemoryBytes()), RatePerSecond: int64(l.GetRatePerSecond()),
		FuelPerSecond: int64(l.GetFuelPerSecond()), BytesPerSecond: int64(l.GetBytesPerSecond()),
	}
}

// showLimits returns nil if the type has no limits of its own.
func showLimits(l modules.Limits) *modulev1.Limits {
	if l == (modules.Limits{}) {
		return nil
	}
	return &modulev1.Limits{
		CommandFuel: uint64(l.CommandFuel), QueryFuel: uint64(l.QueryFuel),
		MaxEvents: uint32(l.MaxEvents), EventBytes: uint32(l.EventBytes), ReplyBytes: uint32(l.ReplyBytes),
		MemoryBytes: uint64(l.MemoryBytes), TypeMemoryBytes: uint64(l.TypeMemoryBytes), RatePerSecond: uint32(l.RatePerSecond),
		FuelPerSecond: uint64(l.FuelPerSecond), BytesPerSecond: uint64(l.BytesPerSecond),
	}
}

// showPatterns returns nil if the manifest sets no patterns, which means every
// type.
func showPatterns(patterns []string) *modulev1.TypePatterns {
	if patterns == nil {
		return nil
	}
	return &modulev1.TypePatterns{Patterns: patterns}
}

func parseDigest(text string) (journal.Digest, error) {
	var d journal.Digest
	if n, err := hex.Decode(d[:], []byte(text[:min(len(text), 2*len(d))])); err != nil || n != len(d) || len(text) != 2*len(d) {
		return d, status.Argument("the digest must be 64 digits of lower-case hex")
	}
	return d, nil
}

// owners checks that the caller of a change to an entity type is its owner.
type owners struct {
	modules Modules
	roles   *authorize.Authorizer // if nil, every caller may do everything
}

// approver decides whether a caller may activate a different module for a type.
type approver interface {
	Approve(ctx context.Context, r modules.Rebinding) (owner string, err error)
}

// approver returns the check for activations, rollouts and rollbacks, or nil
// without roles.
func (o owners) approver() approver {
	if o.roles == nil {
		return nil
	}
	return o
}

// Approve requires that the caller may deploy every type of the module, and
// owns the type that the module is to serve. It must not be called without
// roles.
func (o owners) Approve(ctx context.Context, r modules.Rebinding) (owner string, err error) {
	for _, t := range r.Types {
		if err := o.roles.Deploy(ctx, t); err != nil {
			return "", err
		}
	}
	return o.roles.Own(ctx, r.EntityType, r.Owner)
}

// check returns an error unless the caller owns the type. A type that no module
// serves has no owner.
func (o owners) check(ctx context.Context, entityType string) error {
	owner, err := o.Owner(ctx, entityType)
	if err == nil && o.roles != nil {
		_, err = o.roles.Own(ctx, entityType, owner)
	}
	return err
}

// Owner implements clusterapi.TypeOwners.
func (o owners) Owner(ctx context.Context, entityType string) (string, error) {
	if o.roles == nil || o.modules == nil || sharding.ValidateEntityType(entityType) != nil {
		return "", nil
	}
	owner, err := o.modules.Owner(ctx, entityType)
	if errors.Is(err, request.ErrUnknownType) {
		return "", nil
	}
	return owner, err
}

func amountsMessage(a modules.Amounts) *modulev1.GetQuotasResponse_Amounts {
	return &modulev1.GetQuotasResponse_Amounts{Modules: uint64(a.Modules), Bytes: uint64(a.Bytes), OwnModules: uint64(a.OfOne), OwnBytes: uint64(a.BytesOfOne)}
}

// shadowSetting is the setting that lets a second module also decide a share of
// a type's commands.
const shadowSetting = "shadow"

// AllowSetting implements clusterapi.TypeOwners. Only the owner of an entity
// type may change its settings, and a setting that runs a different module also
// requires the deploy permission, as an activation does.
func (o owners) AllowSetting(ctx context.Context, key, value string) error {
	t, name, ok := modules.TypeSetting(key)
	if !ok {
		return nil
	}
	err := o.check(ctx, t)
	if err == nil && name == shadowSetting && value != "" && o.roles != nil {
		err = o.mayShadow(ctx, t, value)
	}
	return err
}

// mayShadow returns an error unless the caller may let the module that value
// names decide commands of the type. If value names no module, mayShadow allows
// it, and the setting is rejected when it is written.
func (o owners) mayShadow(ctx context.Context, entityType, value string) error {
	if err := o.roles.Deploy(ctx, entityType); err != nil {
		return err
	}
	text, _, _ := strings.Cut(strings.TrimSpace(value), " ")
	digest, err := parseDigest(text)
	if err != nil {
		return nil
	}
	if err := o.mayRun(ctx, entityType, digest); !errors.Is(err, request.ErrUnknownModule) {
		return err
	}
	return nil
}
