package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// slow is the timeout of calls that compile a module.
func (c *Client) slow() time.Duration { return 3 * c.opts.Timeout }

// Uploaded identifies a stored module.
type Uploaded struct {
	Digest      string // SHA-256 of its bytes in hex
	EntityTypes []string
}

// Upload stores a module and, if activate is set, activates it for every entity
// type in it. Uploading the same bytes twice stores one module.
func (c *Client) Upload(ctx context.Context, wasm []byte, activate bool) (Uploaded, error) {
	return UploadSigned(ctx, c, wasm, nil, activate)
}

// UploadSigned is Upload with the module's signature. If the nodes require a
// trusted signature but reject this one, it fails with permission_denied and the
// reason SIGNATURE_MISSING, SIGNATURE_UNTRUSTED or SIGNATURE_BAD.
func UploadSigned(ctx context.Context, c *Client, wasm, signature []byte, activate bool) (Uploaded, error) {
	res, err := UploadModule(ctx, c, &modulev1.UploadModuleRequest{Wasm: wasm, Signature: signature, Activate: activate})
	if err != nil {
		return Uploaded{}, err
	}
	return Uploaded{Digest: res.GetDigest(), EntityTypes: res.GetEntityTypes()}, nil
}

// UploadModule is like Client.Upload, with all options of the API, such as
// Force.
func UploadModule(ctx context.Context, c *Client, req *modulev1.UploadModuleRequest) (*modulev1.UploadModuleResponse, error) {
	res, err := call(ctx, c, c.slow(), req,
		func(n *node, ctx context.Context, r *connect.Request[modulev1.UploadModuleRequest]) (*connect.Response[modulev1.UploadModuleResponse], error) {
			return n.modules.UploadModule(ctx, r)
		})
	if err == nil && req.GetActivate() {
		c.learner.stale.Store(true) // the module may have a type that is not in the topology
	}
	return res, err
}

// RemoveModule removes a stored module. It fails with failed_precondition if
// the module serves a type or if a rollout may return to it.
func RemoveModule(ctx context.Context, c *Client, digest string) error {
	_, err := call(ctx, c, c.opts.Timeout, &modulev1.DeleteModuleRequest{Digest: digest},
		func(n *node, ctx context.Context, r *connect.Request[modulev1.DeleteModuleRequest]) (*connect.Response[modulev1.DeleteModuleResponse], error) {
			return n.modules.DeleteModule(ctx, r)
		})
	return err
}

// ModuleQuotas returns the limits of stored modules and their current number.
func ModuleQuotas(ctx context.Context, c *Client) (*modulev1.GetQuotasResponse, error) {
	return call(ctx, c, c.opts.Timeout, &modulev1.GetQuotasRequest{},
		func(n *node, ctx context.Context, r *connect.Request[modulev1.GetQuotasRequest]) (*connect.Response[modulev1.GetQuotasResponse], error) {
			return n.modules.GetQuotas(ctx, r)
		})
}

// Activate makes a module serve an entity type. It returns the revision of the
// change once every live node serves it. If the type has truncated histories,
// Activate also waits for the compatibility check.
func (c *Client) Activate(ctx context.Context, entityType, digest string) (revision uint64, err error) {
	return c.ActivateLimited(ctx, entityType, digest, nil)
}

// ActivateLimited is Activate that also sets the type's limits; nil leaves them
// unchanged.
func (c *Client) ActivateLimited(ctx context.Context, entityType, digest string, limits *modulev1.Limits) (revision uint64, err error) {
	res, err := ActivateModule(ctx, c, &modulev1.ActivateModuleRequest{EntityType: entityType, Digest: digest, Limits: limits})
	if err != nil || res.GetState() != modulev1.Rollout_STATE_VERIFYING {
		return res.GetRevision(), err
	}
	return AwaitActivation(ctx, c, entityType, digest)
}

// AwaitActivation waits for a module that ActivateModule has left in
// verification, as long as ctx allows. It returns the revision of the change
// once every live node serves the type with the module. It fails with
// failed_precondition if the module failed the check or the activation was
// aborted.
func AwaitActivation(ctx context.Context, c *Client, entityType, digest string) (revision uint64, err error) {
	for pause := minAwait; ; pause = min(2*pause, maxAwait) {
		now, err := rolloutState(ctx, c, &modulev1.GetRolloutRequest{EntityType: entityType, Served: true})
		code, r := CodeOf(err), now.GetRollout()
		switch waits := r.GetDigest() == digest && r.GetState() == modulev1.Rollout_STATE_VERIFYING; {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case waits || code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded:
		case err != nil && code != connect.CodeNotFound:
			return 0, err
		case r.GetDigest() == digest && r.GetState() == modulev1.Rollout_STATE_REJECTED:
			return 0, &Error{Code: connect.CodeFailedPrecondition, Reason: "VERIFY_FAILED", Message: r.GetNote()}
		default:
			return activationRevision(ctx, c, entityType, digest, now.GetAborted())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// minAwait and maxAwait limit the interval at which a module in verification is
// polled.
const minAwait, maxAwait = 50 * time.Millisecond, 2 * time.Second

// activationRevision returns the revision under which a module serves a type.
func activationRevision(ctx context.Context, c *Client, entityType, digest, aborted string) (revision uint64, err error) {
	now, err := c.ActiveModule(ctx, entityType)
	if err != nil {
		return 0, err
	}
	for _, b := range now.GetModule().GetActivations() {
		if b.GetEntityType() == entityType && now.GetModule().GetDigest() == digest {
			return b.GetRevision(), nil
		}
	}
	// This node may lag and still serve the previous module. The history, however,
	// is read from the current metadata.
	changes, err := ModuleHistory(ctx, c, entityType)
	if err != nil {
		return 0, err
	}
	for _, change := range changes {
		if kind := change.GetKind(); kind == modulev1.ActivationChange_KIND_CANARY || kind == modulev1.ActivationChange_KIND_ABORT {
			continue // these changes affect only a part of the type's entities
		}
		if change.GetDigest() == digest {
			return change.GetRevision(), nil
		}
		break
	}
	text := "the module was not activated: its verification was aborted, or a different module was activated since"
	if aborted != "" {
		text += "; " + aborted
	}
	return 0, &Error{Code: connect.CodeFailedPrecondition, Message: text}
}

// ActivateModule is like Client.Activate, with all options of the API, such as
// Force. It does not wait for the verification of the module: the response has
// its state, and AwaitActivation waits for its end.
func ActivateModule(ctx context.Context, c *Client, req *modulev1.ActivateModuleRequest) (*modulev1.ActivateModuleResponse, error) {
	res, err := call(ctx, c, c.slow(), req,
		func(n *node, ctx context.Context, r *connect.Request[modulev1.ActivateModuleRequest]) (*connect.Response[modulev1.ActivateModuleResponse], error) {
			return n.modules.ActivateModule(ctx, r)
		})
	c.learner.stale.Store(true) // the module may have a type that is not in the topology
	return res, err
}

// SetTypeOwner sets the owner of an entity type to a subject such as token:NAME
// or group:NAME. An empty owner leaves the type without an owner.
func (c *Client) SetTypeOwner(ctx context.Context, entityType, owner string) error {
	_, err := call(ctx, c, c.opts.Timeout, &modulev1.SetOwnerRequest{EntityType: entityType, Owner: owner},
		func(n *node, ctx context.Context, r *connect.Request[modulev1.SetOwnerRequest]) (*connect.Response[modulev1.SetOwnerResponse], error) {
			return n.modules.SetOwner(ctx, r)
		})
	return err
}

// TypeOwner returns the subject that owns an entity type; empty if it has no
// owner.
func (c *Client) TypeOwner(ctx context.Context, entityType string) (string, error) {
	res, err := c.ActiveModule(ctx, entityType)
	for _, b := range res.GetModule().GetActivations() {
		if b.GetEntityType() == entityType {
			return b.GetOwner(), err
		}
	}
	return "", err
}

// Rollback makes the previous module serve an entity type. It reads the current
// activation first, so that it reverts only that activation, and only once.
func (c *Client) Rollback(ctx context.Context, entityType string) (*modulev1.RollbackModuleResponse, error) {
	return RollbackModule(ctx, c, &modulev1.RollbackModuleRequest{EntityType: entityType})
}

// RollbackModule is like Client.Rollback, with all options of the API, such as
// Force. If Revision is 0, it reads the current revision from the cluster.
func RollbackModule(ctx context.Context, c *Client, req *modulev1.RollbackModuleRequest) (*modulev1.RollbackModuleResponse, error) {
	if req.GetRevision() == 0 {
		revision, err := servedUnder(ctx, c, req.GetEntityType())
		if err != nil {
			return nil, err
		}
		req = proto.CloneOf(req)
		req.Revision = revision
	}
	return call(ctx, c, c.slow(), req,
		func(n *node, ctx context.Context, r *connect.Request[modulev1.RollbackModuleRequest]) (*connect.Response[modulev1.RollbackModuleResponse], error) {
			return n.modules.RollbackModule(ctx, r)
		})
}

// servedUnder returns the revision of the type's activation.
func servedUnder(ctx context.Context, c *Client, entityType string) (uint64, error) {
	now, err := call(ctx, c, c.opts.Timeout, &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: entityType}},
		func(n *node, ctx context.Context, r *connect.Request[modulev1.GetModuleRequest]) (*connect.Response[modulev1.GetModuleResponse], error) {
			return n.modules.GetModule(ctx, r)
		})
	for _, b := range now.GetModule().GetActivations() {
		if b.GetEntityType() == entityType {
			return b.GetRevision(), nil
		}
	}
	if err == nil {
		err = &Error{Code: connect.CodeAborted, Message: "a different module was activated during the call: try again"}
	}
	return 0, err
}

// Rollout returns the rollout of a module that serves a part of an entity type.
// It fails with connect.CodeNotFound if one module serves the whole type;
// the error says so if the last rollout was aborted.
func Rollout(ctx context.Context, c *Client, entityType string) (*modulev1.Rollout, error) {
	res, err := RolloutState(ctx, c, entityType)
	if err != nil || res.GetRollout() != nil {
		return res.GetRollout(), err
	}
	text := "the type has no rollout"
	if res.GetAborted() != "" {
		text += "; " + res.GetAborted()
	}
	return nil, &Error{Code: connect.CodeNotFound, Message: text}
}

// RolloutState returns the module that serves a part of an entity type, the
// shadow module that also processes its commands, and whether the last rollout
// was aborted. It fails with connect.CodeNotFound if there is none of these.
func RolloutState(ctx context.Context, c *Client, entityType string) (*modulev1.GetRolloutResponse, error) {
	return rolloutState(ctx, c, &modulev1.GetRolloutRequest{EntityType: entityType})
}

func rolloutState(ctx context.Context, c *Client, req *modulev1.GetRolloutRequest) (*modulev1.GetRolloutResponse, error) {
	if _, bounded := ctx.Deadline(); bounded { // the context's deadline may allow a long wait, so limit this call
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	return call(ctx, c, c.opts.Timeout, req,
		func(n *node, ctx context.Context, r *connect.Request[modulev1.GetRolloutRequest]) (*connect.Response[modulev1.GetRolloutResponse], error) {
			return n.modules.GetRollout(ctx, r)
		})
}

// ChangeRollout changes a rollout, and returns when the change is complete.
func ChangeRollout(ctx context.Context, c *Client, req *modulev1.ChangeRolloutRequest) (*modulev1.ChangeRolloutResponse, error) {
	return call(ctx, c, c.slow(), req,
		func(n *node, ctx context.Context, r *connect.Request[modulev1.ChangeRolloutRequest]) (*connect.Response[modulev1.ChangeRolloutResponse], error) {
			return n.modules.ChangeRollout(ctx, r)
		})
}

// ModuleHistory returns the activations of an entity type, newest first.
func ModuleHistory(ctx context.Context, c *Client, entityType string) ([]*modulev1.ActivationChange, error) {
	res, err := call(ctx, c, c.opts.Timeout, &modulev1.GetActivationHistoryRequest{EntityType: entityType},
		func(n *node, ctx context.Context, r *connect.Request[modulev1.GetActivationHistoryRequest]) (*connect.Response[modulev1.GetActivationHistoryResponse], error) {
			return n.modules.GetActivationHistory(ctx, r)
		})
	return res.GetChanges(), err
}

// Modules returns the stored modules, newest first.
func (c *Client) Modules(ctx context.Context) ([]*modulev1.Module, error) {
	return pages(func(token string) ([]*modulev1.Module, string, error) {
		res, err := call(ctx, c, c.opts.Timeout, &modulev1.ListModulesRequest{PageToken: token},
			func(n *node, ctx context.Context, r *connect.Request[modulev1.ListModulesRequest]) (*connect.Response[modulev1.ListModulesResponse], error) {
				return n.modules.ListModules(ctx, r)
			})
		return res.GetModules(), res.GetNextPageToken(), err
	})
}

// Module returns the module with a digest.
func (c *Client) Module(ctx context.Context, digest string) (*modulev1.GetModuleResponse, error) {
	return c.module(ctx, &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_Digest{Digest: digest}})
}

// ActiveModule returns the module that serves an entity type.
func (c *Client) ActiveModule(ctx context.Context, entityType string) (*modulev1.GetModuleResponse, error) {
	return c.module(ctx, &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: entityType}})
}

func (c *Client) module(ctx context.Context, req *modulev1.GetModuleRequest) (*modulev1.GetModuleResponse, error) {
	return call(ctx, c, c.opts.Timeout, req,
		func(n *node, ctx context.Context, r *connect.Request[modulev1.GetModuleRequest]) (*connect.Response[modulev1.GetModuleResponse], error) {
			return n.modules.GetModule(ctx, r)
		})
}

// maxModuleBytes limits a downloaded module; servers accept no larger module.
const maxModuleBytes = 32 << 20

// Download returns a module's bytes as they were uploaded.
func (c *Client) Download(ctx context.Context, digest string) ([]byte, error) {
	res, err := call(ctx, c, c.slow(), &modulev1.DownloadModuleRequest{Digest: digest},
		func(n *node, ctx context.Context, r *connect.Request[modulev1.DownloadModuleRequest]) (*connect.Response[modulev1.DownloadModuleResponse], error) {
			wasm, err := download(ctx, n, r)
			return connect.NewResponse(&modulev1.DownloadModuleResponse{Wasm: wasm}), err
		})
	return res.GetWasm(), err
}

// download assembles the pieces of a module.
func download(ctx context.Context, n *node, r *connect.Request[modulev1.DownloadModuleRequest]) (wasm []byte, err error) {
	in, err := n.modules.DownloadModule(ctx, r)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	for in.Receive() {
		if wasm = append(wasm, in.Msg().GetWasm()...); len(wasm) > maxModuleBytes {
			return nil, connect.NewError(connect.CodeDataLoss, fmt.Errorf("the module is longer than %d bytes", maxModuleBytes))
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if got := sha256.Sum256(wasm); hex.EncodeToString(got[:]) != r.Msg.GetDigest() {
		return nil, connect.NewError(connect.CodeDataLoss, errors.New("the received bytes do not match the module's digest"))
	}
	return wasm, nil
}
