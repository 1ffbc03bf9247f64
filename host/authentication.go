package host

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/quota"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// openAuthentication sets up authentication, roles and quotas of the server in
// opts if the configuration asks for authentication. It also opens the audit
// log, which does not need authentication.
func (n *Node) openAuthentication(opts *edge.Options) error {
	if err := n.openAudit(opts); err != nil {
		return err
	}
	if !n.cfg.ChecksCallers() {
		return nil
	}
	o := authn.Options{
		Anonymous: n.cfg.Auth == config.AuthAllow, TokenFile: n.cfg.TokenFile, CaughtUp: &n.caughtUp,
		CertName: authn.CertName(n.cfg.AuthCertName), NodeCert: func(c *x509.Certificate) bool { return certs.OfNode(c, n.cfg.ClusterName) },
		Now: n.around.Wall, Logger: n.logger, Registerer: n.metrics.registry,
	}
	if opts.Audit != nil {
		o.Audit = opts.Audit
	}
	if n.cfg.OIDCIssuer != "" {
		o.JWT = &authn.JWTOptions{
			Issuer: n.cfg.OIDCIssuer, Audience: n.cfg.OIDCAudience, Parties: n.cfg.OIDCAuthorizedParties,
			NameClaim: n.cfg.OIDCNameClaim, GroupsClaim: n.cfg.OIDCGroupsClaim, KeysFile: n.cfg.JWTKeysFile,
		}
	}
	if err := n.checkCallersKnown(); err != nil {
		return err
	}
	if err := n.checkFirstAdmin(); err != nil {
		return err
	}
	auth, err := authn.New(o)
	if err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	opts.Auth = auth
	roles := authorize.Options{
		Cluster: authorizing{n}, Logger: n.logger, Registerer: n.metrics.registry,
	}
	if opts.Audit != nil {
		roles.Audit = opts.Audit
	}
	n.roles = authorize.New(roles)
	opts.Roles = n.roles
	opts.Quotas = quota.New(quota.Options{
		Roles: n.roles, Anonymous: n.cfg.Auth == config.AuthAllow, Now: n.around.Wall, Registerer: n.metrics.registry,
	})
	n.auth.Store(auth)
	n.lifecycle.watch("authentication", auth.Run)
	return nil
}

// authorizing gives the authorizer access to the metadata of the node's
// cluster.
type authorizing struct{ n *Node }

// Known reports whether the revision of the roles is the current one.
func (a authorizing) Known(revision uint64) bool {
	return a.n.caughtUp.Load() && a.n.membership.metadata.View().RoleRevision() == revision
}

// Fresh reports whether the roles are recent enough to authorize changes.
func (a authorizing) Fresh() bool { return a.n.membership.metadata.IsFresh() }

// Confirm reads the metadata again and applies its roles.
func (a authorizing) Confirm(ctx context.Context) error {
	if err := a.n.membership.metadata.Confirm(ctx); err != nil {
		return err
	}
	a.n.takeRoles() // decide by the latest roles, without waiting for the goroutine of openRoles
	return a.n.auth.Load().Recheck(ctx)
}

// Closed reports whether all callers are rejected until the cluster has an
// admin. Below VersionTokens it is false, because such a cluster can never get
// an admin.
func (a authorizing) Closed() bool {
	n := a.n
	return n.cfg.Auth == config.AuthRequired && n.cfg.Admin != config.AdminFull && n.membership.metadata.View().ClusterVersion() >= sharding.VersionTokens
}

// TypesOf lists the entity types of a stored module.
func (a authorizing) TypesOf(digest string) []string {
	var d meta.Digest
	if _, err := hex.Decode(d[:], []byte(digest[:min(len(digest), 2*len(d))])); err != nil {
		return nil
	}
	m, _ := a.n.membership.metadata.View().Module(d)
	return m.EntityTypes
}

// ServedWith lists the entity types of the module that serves a type.
func (a authorizing) ServedWith(entityType string) []string {
	view := a.n.membership.metadata.View()
	b, _ := view.Activation(entityType)
	m, _ := view.Module(b.Digest)
	return m.EntityTypes
}

// checkCallersKnown returns an error if authentication is on, no source of
// identities is configured, and the node may bootstrap a cluster: nobody could
// call that cluster. A member and a node that joins a cluster need no source of
// their own, because the cluster may hold tokens.
func (n *Node) checkCallersKnown() error {
	id := n.id.Now()
	if n.cfg.IdentifiesCallers() || id.Member() || id.Rejoin != "" || len(n.cfg.Seeds) > 0 && !n.cfg.Bootstrap {
		return nil
	}
	return fmt.Errorf("auth is %s, but no credential is configured: set token-file, oidc-issuer, auth-cert-name or auth-bootstrap-file", n.cfg.Auth)
}

// warnCallersUnknown logs a warning if the node can accept no credential,
// because neither the configuration nor the cluster has any.
func (n *Node) warnCallersUnknown() {
	if n.roles == nil || n.cfg.IdentifiesCallers() || len(n.membership.metadata.View().Tokens()) > 0 {
		return
	}
	n.logger.Warn("the node rejects all callers: the cluster has no tokens, and token-file, oidc-issuer, auth-cert-name and auth-bootstrap-file are unset", "auth", n.cfg.Auth)
}

// openAudit opens the audit log and starts to write it, unless it is off.
func (n *Node) openAudit(opts *edge.Options) error {
	level := n.cfg.AuditLevel()
	if level == config.AuditOff {
		return nil
	}
	path := n.cfg.AuditFile
	if path == "" {
		path = filepath.Join(n.cfg.DataDir, datadir.AuditDir, "audit.log")
	}
	signer, err := audit.OpenSigner(filepath.Join(n.cfg.DataDir, datadir.AuditDir, "key"))
	if err != nil {
		return err
	}
	log, err := audit.Open(audit.Options{
		Path: path, Signer: signer, Node: string(n.cfg.NodeID), Now: n.around.Wall, Logger: n.logger, Registerer: n.metrics.registry,
	})
	if err != nil {
		return err
	}
	n.audit = audit.NewCalls(log, services.Audited(level == config.AuditAll, n.cfg.AuditFailure == config.AuditContinue))
	opts.Audit = n.audit
	n.lifecycle.watch("audit log", log.Run)
	return nil
}

// openRoles applies the cluster's roles to calls and keeps them up to date. If
// authentication is off, it only warns about role bindings that have no effect.
func (n *Node) openRoles() {
	if n.roles == nil {
		if slices.ContainsFunc(n.membership.metadata.View().RoleBindings(), access.Binding.BindsAdmin) {
			n.logger.Warn("the cluster checks roles, but this node does not authenticate callers: anybody who can reach it has all rights", "auth", n.cfg.Auth)
		}
		return
	}
	n.takeRoles()
	n.openFirstAdmin()
	n.lifecycle.watch("age of the metadata", n.membership.metadata.Refresh)
	n.lifecycle.watch("roles", func(ctx context.Context) {
		for {
			changed := n.membership.metadata.Changed()
			n.takeRoles()
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
}

// takeRoles makes calls use the roles and tokens of the current metadata, if
// they are newer than the ones in use. Any goroutine may call it.
func (n *Node) takeRoles() {
	if n.roles == nil {
		return
	}
	view := n.membership.metadata.View()
	if t := n.roles.Table(); t == nil || t.Revision() < view.RoleRevision() {
		// Tokens come first: a caller that waits for a revision of the roles
		// can then rely on the tokens of that revision too.
		n.auth.Load().SetTokens(view.RoleRevision(), view.Tokens())
		n.roles.Set(authz.Compile(view.RoleRevision(), view.Roles(), view.RoleBindings()))
	}
}

// warnShared warns that the clients' listener also serves other nodes, as it
// does at cluster version 1. The checks for clients don't apply to nodes, so
// anybody who imitates a node on this listener is treated as one.
func warnShared(cfg *config.Config, logger *slog.Logger) {
	if cfg.Auth == config.AuthRequired || cfg.TLS() == config.TLSRequire {
		logger.Warn("auth and tls-mode do not protect the client listener from callers that speak the peer protocol, because it serves other nodes too below cluster version 2: run 'hostd cluster upgrade finalize'",
			"auth", cfg.Auth, "tls_mode", cfg.TLS())
	}
}
