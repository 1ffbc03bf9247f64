package modules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// signatureError reports that a node requires signatures and does not trust the
// signature of a module.
type signatureError struct {
	reason signing.Reason
	text   string
}

func (e *signatureError) Error() string { return e.text }

// Code implements status.Coded.
func (e *signatureError) Code() connect.Code { return connect.CodePermissionDenied }

// Detail implements status.Detailed.
func (e *signatureError) Detail() proto.Message {
	return &errdetails.ErrorInfo{Reason: string(e.reason), Domain: "hostd"}
}

// Unwrap returns the error by which peers recognize the reason.
func (e *signatureError) Unwrap() error { return peerErrors[e.reason] }

var peerErrors = map[signing.Reason]error{
	signing.Missing: peer.ErrSignatureMissing, signing.Untrusted: peer.ErrSignatureUntrusted, signing.Bad: peer.ErrSignatureBad,
}

// fromPeer returns the signatureError reported by another node, or nil for any
// other error.
func fromPeer(err error) error {
	for _, reason := range signing.Reasons {
		if errors.Is(err, peerErrors[reason]) {
			return &signatureError{reason, fmt.Sprintf("not every node accepts the module: %v", err)}
		}
	}
	return nil
}

// statement returns the statement that the signature of a module signs.
func statement(m meta.Module) signing.Statement {
	return signing.Statement{Digest: m.Digest, Name: m.Name, Version: m.Version}
}

// trustedKey returns the name of the key that signed a module, or the reason why the
// signature is not trusted.
func trustedKey(keys *signing.Keys, m meta.Module) (by string, fault signing.Reason) {
	by, err := keys.Judge(statement(m), m.Signature)
	var e *signing.Error
	if errors.As(err, &e) {
		return "", e.Reason
	}
	return by, ""
}

func notSigned(e *signing.Error) error {
	return &signatureError{e.Reason, e.Error() + ": sign it with 'hostd module sign', and upload the signature with 'hostd module push --signature'"}
}

// checkSignature returns a *signatureError if this node requires signatures
// and does not trust the module's signature. If the node only warns, it logs
// the reason and returns nil.
func (d *Distribution) checkSignature(m meta.Module) error {
	if d.trust.Mode() == signing.Off {
		return nil
	}
	_, err := d.trust.Judge(statement(m), m.Signature)
	var e *signing.Error
	switch {
	case !errors.As(err, &e):
		return err
	case d.trust.Mode() == signing.Require:
		return notSigned(e)
	}
	d.logger.Warn("this node does not trust a module's signature", "digest", m.Digest.String(), "module", m.Name, "reason", string(e.Reason))
	return nil
}

// checkSignatureHere is checkSignature for a module in the metadata. It rejects
// a signature only after this node has applied all committed metadata.
func (d *Distribution) checkSignatureHere(ctx context.Context, digest journal.Digest) error {
	if d.trust.Mode() == signing.Off {
		return nil
	}
	if m, ok := d.metadata.View().Module(meta.Digest(digest)); ok {
		if _, err := d.trust.Judge(statement(m), m.Signature); err == nil {
			return nil
		}
	}
	if err := d.metadata.CatchUp(ctx); err != nil {
		return err
	}
	m, _ := d.metadata.View().Module(meta.Digest(digest))
	return d.checkSignature(m)
}

// checkUpload rejects an upload before it is compiled if its signature cannot
// be stored, or if no module with that signature could be trusted.
func (s *Service) checkUpload(u Upload) error {
	view := s.metadata.View()
	if version := view.ClusterVersion(); len(u.Signature) > 0 && version < sharding.VersionSignatures {
		return &status.RefusedError{Reason: sharding.VersionSignatures.NeededBy("module signatures need", version)}
	}
	if s.modules.trust.Mode() != signing.Require {
		return nil
	}
	signature := u.Signature
	if len(signature) == 0 {
		known, _ := view.Module(meta.Digest(guest.DigestOf(u.Wasm)))
		signature = known.Signature
	}
	var e *signing.Error
	if errors.As(s.modules.trust.Keys().Possible(signature), &e) {
		return notSigned(e)
	}
	return nil
}

// betterSignature returns the signature that a module has after an upload:
// the new signature, unless this node trusts the existing signature and not
// the new one.
func (s *Service) betterSignature(m meta.Module, brought []byte) []byte {
	before, known := s.metadata.View().Module(m.Digest)
	if !known || len(before.Signature) == 0 || len(brought) == 0 {
		return append(brought, before.Signature...) // at most one of the two is not empty
	}
	keys := s.modules.trust.Keys()
	m.Signature = brought
	if _, fault := trustedKey(keys, m); fault != "" {
		if _, fault := trustedKey(keys, before); fault == "" {
			return before.Signature
		}
	}
	return brought
}

// Unsigned is an entity type whose module has no signature that this node
// trusts.
type Unsigned struct {
	EntityType string
	Digest     journal.Digest
	Reason     signing.Reason
	Refused    bool // Reason prevents the type from being served
}

// signatureResults are the results of checking the signatures of all serving
// modules.
type signatureResults struct {
	keys       *signing.Keys
	signatures map[string]string // signatures that were checked, by entity type
	unsigned   map[string]Unsigned
}

// checkSignatures checks the signatures of all serving modules with the current
// keys. It logs new problems.
func (t *Types) checkSignatures(view *meta.View) map[string]Unsigned {
	trust := t.modules.trust
	if trust.Mode() == signing.Off {
		return nil
	}
	keys, out := trust.Keys(), map[string]Unsigned{}
	signatures := map[string]string{}
	for _, b := range view.Activations() {
		m, _ := view.Module(b.Digest)
		signatures[b.EntityType] = string(m.Signature)
		if _, fault := trustedKey(keys, m); fault != "" {
			out[b.EntityType] = Unsigned{b.EntityType, journal.Digest(b.Digest), fault, trust.Mode() == signing.Require}
		}
	}
	before := t.signatureResults.Load().unsigned
	for _, name := range slices.Sorted(maps.Keys(out)) {
		switch u := out[name]; {
		case before[name] == u:
		case u.Refused:
			t.logger.Error("an entity type is not served because this node does not trust its module's signature", "entity_type", name, "digest", u.Digest.String(), "reason", string(u.Reason))
		default:
			t.logger.Warn("serving an entity type although this node does not trust its module's signature", "entity_type", name, "digest", u.Digest.String(), "reason", string(u.Reason))
		}
	}
	t.signatureResults.Store(&signatureResults{keys, signatures, out})
	return out
}

// needsSignatureCheck reports whether the serving modules must be checked
// again, because the trusted keys have changed or a module got a different
// signature.
func (t *Types) needsSignatureCheck(view *meta.View) bool {
	if t.modules.trust.Mode() == signing.Off {
		return false
	}
	last := t.signatureResults.Load()
	if last.keys != t.modules.trust.Keys() {
		return true
	}
	for _, b := range view.Activations() {
		if m, _ := view.Module(b.Digest); last.signatures[b.EntityType] != string(m.Signature) {
			return true
		}
	}
	return false
}

// UnsignedTypes returns the entity types whose modules have no signature that this
// node trusts, by name. It returns none if the node does not check signatures.
func (t *Types) UnsignedTypes() []Unsigned {
	all := t.signatureResults.Load().unsigned
	out := make([]Unsigned, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}
