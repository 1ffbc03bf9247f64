package host

import (
	"fmt"
	"log/slog"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/rpc"
)

// openAuthentication begins to know callers by their credentials, where that is
// asked for.
func (n *Node) openAuthentication(opts *rpc.Options) error {
	if !n.cfg.Authenticated() {
		return nil
	}
	o := authn.Options{
		Anonymous: n.cfg.Auth == config.AuthAllow, TokenFile: n.cfg.TokenFile,
		Now: n.around.Wall, Logger: n.logger, Registerer: n.metrics.registry,
	}
	if n.cfg.OIDCIssuer != "" {
		o.JWT = &authn.JWTOptions{
			Issuer: n.cfg.OIDCIssuer, Audience: n.cfg.OIDCAudience,
			NameClaim: n.cfg.OIDCNameClaim, GroupsClaim: n.cfg.OIDCGroupsClaim, KeysFile: n.cfg.JWTKeysFile,
		}
	}
	auth, err := authn.New(o)
	if err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	opts.Auth = auth
	n.auth.Store(auth)
	n.lifecycle.watch("authentication", auth.Run)
	return nil
}

// warnShared tells of a node that asks its clients for something, and whose
// listener for clients serves other nodes too: of those it asks nothing, and
// who pretends to be one is taken for one.
func warnShared(cfg *config.Config, logger *slog.Logger) {
	if cfg.Auth == config.AuthRequired || cfg.TLS() == config.TLSRequire {
		logger.Warn("auth and tls-mode do not guard the clients' listener from those who send what nodes send: it serves other nodes too below level 2 of the cluster; 'hostd cluster raise-level' ends that",
			"auth", cfg.Auth, "tls_mode", cfg.TLS())
	}
}
