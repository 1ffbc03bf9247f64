package backup

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding/meta"
)

// bringSettings imports the settings of the archive. It leaves out settings
// that PutSetting would reject, because a file must not bring a value that no
// caller could store. Such a value may be wrong, or of another release. The
// rest of the file is imported nevertheless, because nobody could remove a
// setting from the file.
func (in *importing) bringSettings() error {
	left := omittedLines{}
	for _, set := range in.about.Settings {
		view := in.Metadata.View()
		if have, ok := view.Setting(set.Key); ok && bytes.Equal(have.Value, set.Value) || len(set.Value) == 0 {
			continue
		}
		err := checkSetting(view, set)
		if err == nil {
			_, err = in.Metadata.Do(in.ctx, meta.PutSetting(set.Key, set.Value))
			if err != nil && !errors.Is(err, meta.ErrInvalid) {
				return fmt.Errorf("import setting %s: %w", set.Key, err)
			}
		}
		if err != nil {
			in.Logger.Warn("skipped a setting of the backup", "key", set.shownKey(), "error", err)
			left.add("setting " + set.shownKey())
			continue
		}
		if err := in.Metadata.CatchUp(in.ctx); err != nil { // the next check counts this setting
			return err
		}
	}
	in.omitted = append(in.omitted, left.lines()...)
	return in.Metadata.CatchUp(in.ctx)
}

// checkSetting returns an error if a caller could not store the setting.
func checkSetting(view *meta.View, set describedSetting) error {
	value := string(set.Value)
	return errors.Join(modules.CheckSetting(set.Key, value), telemetry.CheckSetting(set.Key, value), modules.CheckRoom(view, set.Key, value), modules.CheckShadow(view, set.Key, value))
}

// shownKey returns at most meta.MaxSettingKeyBytes of the key.
func (s describedSetting) shownKey() string {
	return strings.ToValidUTF8(s.Key[:min(len(s.Key), meta.MaxSettingKeyBytes)], "")
}
