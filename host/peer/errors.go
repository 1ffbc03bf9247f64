package peer

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
)

// Errors of calls between nodes. If a Control returns an error that wraps
// one of these errors, the caller receives an error that wraps the same
// error.
var (
	// ErrWrongCluster: the two nodes are in different clusters. A retry cannot
	// succeed.
	ErrWrongCluster = errors.New("wrong cluster")
	// ErrWrongNode: a different node answers at the address, because the
	// address is outdated.
	ErrWrongNode = errors.New("wrong node")
	// ErrWrongIdentity: the caller or the answering node claims to be a
	// different node than its certificate names. A retry cannot succeed.
	ErrWrongIdentity = errors.New("wrong node identity")
	// ErrNotMember: the calling node is not a member of the cluster, or an
	// operator put it down and it has not joined again. The call had no effect,
	// and may succeed after a join.
	ErrNotMember = errors.New("not a member of the cluster")
	// ErrOldIncarnation: a newer incarnation of the calling or answering
	// node is known. The process of the older incarnation should not be
	// running.
	ErrOldIncarnation = errors.New("outdated start of a node")
	// ErrFormat: the two nodes support no common cluster version, or one of
	// them does not support the current version.
	ErrFormat = errors.New("no common cluster version")
	// ErrUnavailable: the call had no effect, and a retry may succeed.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnreachable: the call did not leave this node. It wraps
	// ErrUnavailable.
	ErrUnreachable = fmt.Errorf("unreachable: %w", ErrUnavailable)
	// ErrRefused: the call had no effect, and the same request can never
	// succeed.
	ErrRefused = errors.New("refused")
	// ErrPutDown: an operator put this incarnation of the calling node down.
	// The call had no effect, and only a later incarnation of the node can
	// succeed.
	ErrPutDown = errors.New("declared down by an operator")
	// ErrSignatureMissing, ErrSignatureUntrusted and ErrSignatureBad: the node
	// requires signatures and does not accept the module's. The call had no
	// effect.
	ErrSignatureMissing   = errors.New("the module is not signed")
	ErrSignatureUntrusted = errors.New("the module is signed with a key that is not trusted")
	ErrSignatureBad       = errors.New("the signature does not match the module")
	// ErrNotFound: the requested object does not exist.
	ErrNotFound = errors.New("not found")
	// ErrTooLarge: a request or an answer exceeds its limit.
	ErrTooLarge = errors.New("too large")
	// ErrUnknownOutcome: the call was made, but no answer arrived. It may have
	// taken effect.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// errClosed: Peers is closed.
	errClosed = errors.New("connections to other nodes are closed")
)

// Reasons why a caller is not looked up in the metadata.
var (
	errStarting = errors.New("the node is starting")
	errLookups  = errors.New("too many calls wait for the metadata")
)

// NotLeaderError is a *sharding.NotLeaderError from another node, with the
// address of the leader if it is known. The call had no effect.
type NotLeaderError struct {
	sharding.NotLeaderError
	Address string
}

// Unwrap implements the interface of package errors.
func (e *NotLeaderError) Unwrap() error { return &e.NotLeaderError }

// faults maps errors to codes and kinds.
var faults = []struct {
	err  error
	kind peerv1.Fault_Kind
	code connect.Code
}{
	{ErrWrongCluster, peerv1.Fault_KIND_WRONG_CLUSTER, connect.CodePermissionDenied},
	{ErrWrongNode, peerv1.Fault_KIND_WRONG_NODE, connect.CodeFailedPrecondition},
	{ErrWrongIdentity, peerv1.Fault_KIND_WRONG_IDENTITY, connect.CodePermissionDenied},
	{ErrNotMember, peerv1.Fault_KIND_NOT_MEMBER, connect.CodePermissionDenied},
	{ErrOldIncarnation, peerv1.Fault_KIND_OLD_INCARNATION, connect.CodeAborted},
	{ErrFormat, peerv1.Fault_KIND_FORMAT, connect.CodeUnimplemented},
	{ErrUnavailable, peerv1.Fault_KIND_UNAVAILABLE, connect.CodeUnavailable},
	{ErrRefused, peerv1.Fault_KIND_REFUSED, connect.CodeInvalidArgument},
	{ErrPutDown, peerv1.Fault_KIND_PUT_DOWN, connect.CodeAborted},
	{ErrSignatureMissing, peerv1.Fault_KIND_SIGNATURE_MISSING, connect.CodePermissionDenied},
	{ErrSignatureUntrusted, peerv1.Fault_KIND_SIGNATURE_UNTRUSTED, connect.CodePermissionDenied},
	{ErrSignatureBad, peerv1.Fault_KIND_SIGNATURE_BAD, connect.CodePermissionDenied},
	{ErrNotFound, peerv1.Fault_KIND_NOT_FOUND, connect.CodeNotFound},
	{ErrTooLarge, peerv1.Fault_KIND_TOO_LARGE, connect.CodeResourceExhausted},
	{ErrUnknownOutcome, peerv1.Fault_KIND_UNKNOWN_OUTCOME, connect.CodeUnknown},
}

// encodeError encodes an error for the wire. An error that does not wrap one of
// this package's errors may have had an effect.
func (p *Peers) encodeError(err error) *connect.Error {
	var already *connect.Error
	if errors.As(err, &already) {
		return already
	}
	var elsewhere *sharding.NotLeaderError
	if errors.As(err, &elsewhere) {
		return withFault(connect.CodeFailedPrecondition, err, &peerv1.Fault{
			Kind: peerv1.Fault_KIND_NOT_LEADER, ShardId: uint32(elsewhere.Shard), Term: uint64(elsewhere.Term),
			Leader: string(elsewhere.Leader), LeaderAddress: p.addressOf(elsewhere.Leader),
		})
	}
	for _, f := range faults {
		if errors.Is(err, f.err) {
			return withFault(f.code, err, &peerv1.Fault{Kind: f.kind})
		}
	}
	code := connect.CodeUnknown
	if errors.Is(err, context.DeadlineExceeded) {
		code = connect.CodeDeadlineExceeded
	}
	return withFault(code, err, &peerv1.Fault{Kind: peerv1.Fault_KIND_UNKNOWN_OUTCOME})
}

// Fault returns an error in the form that is sent to the calling node.
func (p *Peers) Fault(err error) error { return p.encodeError(err) }

func withFault(code connect.Code, err error, fault *peerv1.Fault) *connect.Error {
	out := connect.NewError(code, err)
	if detail, err := connect.NewErrorDetail(fault); err == nil {
		out.AddDetail(detail)
	}
	return out
}

// decodeError converts the error of a call into this package's errors.
func decodeError(node sharding.NodeID, err error) error {
	if err == nil {
		return nil
	}
	if own := localErrorOf(err); own != nil {
		return fmt.Errorf("call node %s: %w", node, own)
	}
	var remote *connect.Error
	if !errors.As(err, &remote) {
		return fmt.Errorf("call node %s: %w: %w", node, ErrUnknownOutcome, err)
	}
	for _, detail := range remote.Details() {
		value, derr := detail.Value()
		fault, ok := value.(*peerv1.Fault)
		if derr == nil && ok {
			return fmt.Errorf("node %s: %w", node, decodeFault(fault, remote.Message()))
		}
	}
	if remote.Code() == connect.CodeResourceExhausted {
		return fmt.Errorf("call node %s: %w: %w", node, ErrTooLarge, err)
	}
	return fmt.Errorf("call node %s: %w: %w", node, ErrUnknownOutcome, err)
}

// localErrorOf returns the error if this side made it, or nil.
func localErrorOf(err error) error {
	var local *localError
	if errors.As(err, &local) {
		return local.err
	}
	return nil
}

// localError marks an error of this side while it passes through the HTTP
// client.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

func decodeFault(f *peerv1.Fault, text string) error {
	if f.GetKind() == peerv1.Fault_KIND_NOT_LEADER {
		return &NotLeaderError{
			NotLeaderError: sharding.NotLeaderError{
				Shard: sharding.ShardID(f.GetShardId()), Term: sharding.Term(f.GetTerm()), Leader: sharding.NodeID(f.GetLeader()),
			},
			Address: f.GetLeaderAddress(),
		}
	}
	for _, known := range faults {
		if known.kind == f.GetKind() {
			return &faultError{known.err, text}
		}
	}
	return &faultError{ErrUnknownOutcome, text}
}

// faultError is an error of another node: its text, and the error that it
// wraps.
type faultError struct {
	kind error
	text string
}

func (e *faultError) Error() string { return e.text }
func (e *faultError) Unwrap() error { return e.kind }
