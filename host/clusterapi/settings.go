package clusterapi

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/status"
)

// TypeOwners knows the owners of entity types.
type TypeOwners interface {
	// Owner returns the owner of an entity type; empty if it has none.
	Owner(ctx context.Context, entityType string) (string, error)
	// AllowSetting returns an error if the caller may not set the key to the
	// value. An empty value deletes the setting.
	AllowSetting(ctx context.Context, key, value string) error
}

// settingService implements the calls about settings.
type settingService struct {
	settings Settings
	owners   TypeOwners
	log      *slog.Logger
	guard    *admission.Streams
}

func settingMessage(s Setting) *clusterv1.Setting {
	return &clusterv1.Setting{Key: s.Key, Value: s.Value, Revision: s.Revision}
}

// PutSetting writes a setting.
func (s *settingService) PutSetting(ctx context.Context, req *connect.Request[clusterv1.PutSettingRequest]) (*connect.Response[clusterv1.PutSettingResponse], error) {
	if err := s.owners.AllowSetting(ctx, req.Msg.GetKey(), req.Msg.GetValue()); err != nil {
		return nil, status.Public(s.log, err)
	}
	revision, err := s.settings.Put(ctx, req.Msg.GetKey(), req.Msg.GetValue())
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.PutSettingResponse{Revision: revision}), nil
}

// GetSetting reads a setting.
func (s *settingService) GetSetting(ctx context.Context, req *connect.Request[clusterv1.GetSettingRequest]) (*connect.Response[clusterv1.GetSettingResponse], error) {
	setting, err := s.settings.Get(ctx, req.Msg.GetKey())
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.GetSettingResponse{Setting: settingMessage(setting)}), nil
}

// ListSettings lists the settings with a prefix, in pages.
func (s *settingService) ListSettings(_ context.Context, req *connect.Request[clusterv1.ListSettingsRequest]) (*connect.Response[clusterv1.ListSettingsResponse], error) {
	list, revision, err := s.settings.List(req.Msg.GetKeyPrefix())
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &clusterv1.ListSettingsResponse{Revision: revision}
	out.Settings, out.NextPageToken, err = page.Of(req.Msg, page.Filter("settings", req.Msg.GetKeyPrefix()), list,
		func(s *Setting) string { return s.Key }, func(s *Setting) *clusterv1.Setting { return settingMessage(*s) })
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(out), nil
}

// WatchSettings sends every setting with a prefix, and then every change. It
// compares the revisions that it has sent with the current ones, so a slow
// client may miss intermediate values, but gets the latest value of each
// setting.
func (s *settingService) WatchSettings(ctx context.Context, req *connect.Request[clusterv1.WatchSettingsRequest], out *connect.ServerStream[clusterv1.WatchSettingsResponse]) error {
	open, err := s.guard.Enter(ctx)
	if err != nil {
		return status.Public(s.log, err)
	}
	defer open.Leave()
	// Send the headers now, because the client waits for them and the first
	// setting may arrive late.
	if err := out.Send(nil); err != nil {
		return err
	}
	sent := make(map[string]uint64)
	for {
		changed := s.settings.Changed() // subscribe before List, so that no later change is missed
		list, revision, err := s.settings.List(req.Msg.GetKeyPrefix())
		if err != nil {
			return status.Public(s.log, err)
		}
		for _, setting := range difference(sent, list, revision) {
			open.BeginWrite()
			err := out.Send(&clusterv1.WatchSettingsResponse{Setting: settingMessage(setting)})
			open.EndWrite()
			if err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.Public(s.log, ctx.Err())
		case <-s.guard.Stopping():
			return status.Public(s.log, admission.ErrStopping)
		}
	}
}

// difference returns the settings of list that are new compared to sent, and
// updates sent. A deleted setting has no value and the revision of the last
// change.
func difference(sent map[string]uint64, list []Setting, revision uint64) []Setting {
	var out []Setting
	have := make(map[string]bool, len(list))
	for _, setting := range list {
		have[setting.Key] = true
		if before, ok := sent[setting.Key]; !ok || before != setting.Revision {
			out = append(out, setting)
			sent[setting.Key] = setting.Revision
		}
	}
	for key := range sent {
		if !have[key] {
			out = append(out, Setting{Key: key, Revision: revision})
			delete(sent, key)
		}
	}
	return out
}
