package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// PutSetting sets a setting, or removes it if value is empty. It returns the
// revision of the change, which is durable.
func (c *Client) PutSetting(ctx context.Context, key, value string) (revision uint64, err error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.PutSettingRequest{Key: key, Value: value},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.PutSettingRequest]) (*connect.Response[clusterv1.PutSettingResponse], error) {
			return n.cluster.PutSetting(ctx, r)
		})
	return res.GetRevision(), err
}

// Setting reads a setting from the answering node's copy. If the setting does
// not exist, IsNotFound returns true for the error.
func (c *Client) Setting(ctx context.Context, key string) (*clusterv1.Setting, error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.GetSettingRequest{Key: key},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.GetSettingRequest]) (*connect.Response[clusterv1.GetSettingResponse], error) {
			return n.cluster.GetSetting(ctx, r)
		})
	return res.GetSetting(), err
}

// Settings returns the settings whose names begin with prefix, ordered by name,
// and the revision of the last change of any setting, from the answering node's
// copy.
func (c *Client) Settings(ctx context.Context, prefix string) (settings []*clusterv1.Setting, revision uint64, err error) {
	return allSettings(prefix, func(req *clusterv1.ListSettingsRequest) (*clusterv1.ListSettingsResponse, error) {
		return call(ctx, c, c.opts.Timeout, req,
			func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListSettingsRequest]) (*connect.Response[clusterv1.ListSettingsResponse], error) {
				return n.cluster.ListSettings(ctx, r)
			})
	})
}

// allSettings reads all pages, and starts again if a setting changed in
// between, so that the result is consistent at the returned revision.
func allSettings(prefix string, ask func(*clusterv1.ListSettingsRequest) (*clusterv1.ListSettingsResponse, error)) (settings []*clusterv1.Setting, revision uint64, err error) {
	for changed := true; changed; {
		revision, changed = 0, false
		settings, err = pages(func(token string) ([]*clusterv1.Setting, string, error) {
			res, err := ask(&clusterv1.ListSettingsRequest{KeyPrefix: prefix, PageToken: token})
			if changed = token != "" && res.GetRevision() != revision; err != nil || changed {
				return nil, "", err
			}
			revision = res.GetRevision()
			return res.GetSettings(), res.GetNextPageToken(), nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return settings, revision, nil
}

// WatchSettings yields the settings whose names begin with prefix and then
// their changes, as long as ctx lasts. If a node fails, it continues at
// another node. Values that were replaced quickly may be left out, but the
// latest value never is. An error ends it.
func (c *Client) WatchSettings(ctx context.Context, prefix string) iter.Seq2[*clusterv1.Setting, error] {
	return func(yield func(*clusterv1.Setting, error) bool) {
		type known struct {
			revision uint64
			set      bool
		}
		seen := make(map[string]known)
		newest := uint64(0)
		// This node may lag behind the previous node, so older values are
		// not shown.
		show := func(s *clusterv1.Setting) bool {
			before, set := seen[s.GetKey()], s.GetValue() != ""
			if before.revision >= s.GetRevision() || !set && !before.set {
				return true
			}
			seen[s.GetKey()] = known{s.GetRevision(), set}
			newest = max(newest, s.GetRevision())
			return yield(s, nil)
		}
		// A setting that was removed between two streams is reported by
		// neither stream.
		gone := func(n *node, ctx context.Context) (bool, error) {
			if len(seen) == 0 {
				return true, nil
			}
			settings, revision, err := allSettings(prefix, func(req *clusterv1.ListSettingsRequest) (*clusterv1.ListSettingsResponse, error) {
				res, err := n.cluster.ListSettings(ctx, connect.NewRequest(req))
				if err != nil {
					return nil, err
				}
				return res.Msg, nil
			})
			if err != nil || revision < newest {
				return true, err // a node that lags does not know that the setting was removed
			}
			have := make(map[string]bool)
			for _, s := range settings {
				have[s.GetKey()] = true
			}
			for key, before := range seen {
				if before.set && !have[key] && !show(&clusterv1.Setting{Key: key, Revision: revision}) {
					return false, nil
				}
			}
			return true, nil
		}
		err := follow(ctx, c, func(n *node, ctx context.Context) (*connect.ServerStreamForClient[clusterv1.WatchSettingsResponse], bool, error) {
			if wanted, err := gone(n, ctx); err != nil || !wanted {
				return nil, wanted, err
			}
			s, err := n.cluster.WatchSettings(ctx, connect.NewRequest(&clusterv1.WatchSettingsRequest{KeyPrefix: prefix}))
			return s, true, err
		}, func(m *clusterv1.WatchSettingsResponse) bool { return show(m.GetSetting()) })
		if err != nil {
			yield(nil, err)
		}
	}
}
