package clusterapi

import (
	"context"
	"errors"

	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding/meta"
)

// settingStore implements Settings.
type settingStore struct{ *Parts }

func (s settingStore) view() (*meta.View, error) {
	if !s.CaughtUp.Load() {
		return nil, request.ErrNotReady
	}
	return s.Metadata.View(), nil
}

func (s settingStore) Get(ctx context.Context, key string) (Setting, error) {
	view, err := s.view()
	if err != nil {
		return Setting{}, err
	}
	v, ok := view.Setting(key)
	if !ok {
		if s.Metadata.Confirm(ctx) != nil {
			return Setting{}, request.ErrNotReady
		}
		if v, ok = s.Metadata.View().Setting(key); !ok {
			return Setting{}, ErrUnknownSetting
		}
	}
	return Setting{Key: v.Key, Value: string(v.Value), Revision: v.Revision}, nil
}

func (s settingStore) List(prefix string) ([]Setting, uint64, error) {
	view, err := s.view()
	if err != nil {
		return nil, 0, err
	}
	var out []Setting
	for _, key := range view.SettingKeys() {
		if v, ok := view.Setting(key); ok && len(key) >= len(prefix) && key[:len(prefix)] == prefix {
			out = append(out, Setting{Key: key, Value: string(v.Value), Revision: v.Revision})
		}
	}
	return out, view.SettingRevision(), nil
}

func (s settingStore) Put(ctx context.Context, key, value string) (uint64, error) {
	if err := errors.Join(modules.CheckSetting(key, value), telemetry.CheckSetting(key, value)); err != nil {
		return 0, &invalidSettingError{Reason: err.Error()}
	}
	if err := modules.CheckRoom(s.Metadata.View(), key, value); err != nil {
		return 0, &invalidSettingError{Reason: err.Error()}
	}
	if modules.CheckShadow(s.Metadata.View(), key, value) != nil { // the module may have been uploaded a moment ago
		if err := s.Metadata.CatchUp(ctx); err != nil {
			return 0, err
		}
		if err := modules.CheckShadow(s.Metadata.View(), key, value); err != nil {
			return 0, &invalidSettingError{Reason: err.Error()}
		}
	}
	command := meta.PutSetting(key, []byte(value))
	if value == "" {
		command = meta.DeleteSetting(key)
	}
	res, err := s.Metadata.Do(ctx, command)
	if errors.Is(err, meta.ErrInvalid) {
		return 0, &invalidSettingError{Reason: err.Error()}
	}
	if err != nil {
		return 0, err
	}
	// The change is applied on the metadata leader. Wait until it is applied
	// here too, because the caller may read it next.
	return res.Revision, s.Metadata.CatchUp(ctx)
}

func (s settingStore) Changed() <-chan struct{} { return s.Metadata.Changed() }
