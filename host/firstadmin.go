package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// firstAdminPause is the pause between two attempts to set the first admin, and
// firstAdminPatience is the timeout of one attempt.
const (
	firstAdminPause    = time.Second
	firstAdminPatience = 10 * time.Second
)

// checkFirstAdmin returns an error if auth-bootstrap-file is invalid. A missing
// file is only a warning, because a cluster that has an admin no longer
// needs the file.
func (n *Node) checkFirstAdmin() error {
	path := n.cfg.AuthBootstrapFile
	if path == "" {
		return nil
	}
	_, err := authn.ReadFirstAdmin(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		n.logger.Warn("auth-bootstrap-file does not exist; the node looks for it again until the cluster has an admin", "file", path)
		return nil
	case err != nil:
		return fmt.Errorf("auth-bootstrap-file %s: %w", path, err)
	}
	return nil
}

// openFirstAdmin sets the cluster's first admin from auth-bootstrap-file, in
// the background and with retries, unless the cluster has an admin. If nodes
// have different files, the metadata log decides: the first command wins.
func (n *Node) openFirstAdmin() {
	if n.cfg.AuthBootstrapFile == "" || n.roles == nil {
		return
	}
	n.lifecycle.watch("first admin", func(ctx context.Context) {
		told := ""
		for {
			done, err := n.makeFirstAdmin(ctx)
			if done || ctx.Err() != nil {
				return
			}
			if err != nil && err.Error() != told {
				told = err.Error()
				n.logger.Error("cannot set the first admin from auth-bootstrap-file", "error", err)
			}
			again := time.NewTimer(firstAdminPause)
			select {
			case <-again.C:
			case <-ctx.Done():
			}
			again.Stop()
		}
	})
}

// makeFirstAdmin makes one attempt to set the first admin; done reports that
// the cluster has an admin. It does nothing while the cluster version is below
// sharding.VersionTokens, because such a cluster has no roles.
func (n *Node) makeFirstAdmin(ctx context.Context) (done bool, err error) {
	view := n.membership.metadata.View()
	if view.HasAdmin() {
		return true, nil
	}
	if !n.caughtUp.Load() || view.ClusterVersion() < sharding.VersionTokens {
		return false, nil
	}
	first, err := authn.ReadFirstAdmin(n.cfg.AuthBootstrapFile)
	if err != nil {
		return false, err
	}
	command := meta.PutFirstRoleBinding(access.Binding{Subject: first.Subject, Roles: []string{access.RoleAdmin}})
	if first.Subject == "" {
		now := time.Now
		if n.around.Wall != nil {
			now = n.around.Wall
		}
		first.Token.CreatedAt = now().UnixNano()
		command = meta.PutFirstToken(first.Token, access.RoleAdmin)
	}
	ctx, cancel := context.WithTimeout(ctx, firstAdminPatience)
	defer cancel()
	res, err := n.membership.metadata.Do(ctx, command)
	switch {
	case errors.Is(err, meta.ErrConflict) && n.membership.metadata.View().HasAdmin():
		return true, nil
	case err != nil:
		return false, err
	}
	if res.Changed {
		n.logger.Info("set the first admin from auth-bootstrap-file; role checks are now on", "subject", first.Who())
	}
	return true, nil
}
