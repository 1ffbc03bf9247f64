package meta

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings for modules; from sharding.VersionModuleRetention on. If a setting
// is missing or invalid, its default applies.
const (
	// SettingModuleRetention is how long an unused module is kept: a number of
	// days such as 30d, a duration such as 36h, or off.
	SettingModuleRetention = "module-retention"
	// SettingModuleCount, SettingModuleBytes and SettingModuleUploader limit
	// the number of modules, their total size (such as 1GiB), and the number of
	// modules per uploader. Lowering a quota does not remove modules.
	SettingModuleCount    = "module-quota-count"
	SettingModuleBytes    = "module-quota-bytes"
	SettingModuleUploader = "module-quota-uploader"
	// SettingModuleUploaderBytes limits the total size of the modules per
	// uploader; from sharding.VersionUploaderBytes on.
	SettingModuleUploaderBytes = "module-quota-uploader-bytes"
)

// Default and bounds of SettingModuleRetention. Modules are pushed before they
// are bound, and the minimum leaves time to bind them.
const (
	DefaultModuleRetention = 30 * day
	minModuleRetention     = time.Second
	maxModuleRetention     = 3650 * day
	day                    = 24 * time.Hour
)

// ModuleQuotas limit the modules of a cluster.
type ModuleQuotas struct {
	Modules int   // in the cluster
	Bytes   int64 // total size of the modules
	OfOne   int   // modules per uploader
	// BytesOfOne limits the total size of the modules of one uploader. Without
	// it, one uploader of large modules could use up the space of all other
	// uploaders.
	BytesOfOne int64
}

// DefaultModuleQuotas apply if no settings are present.
var DefaultModuleQuotas = ModuleQuotas{Modules: MaxModules, Bytes: 1 << 30, OfOne: 100, BytesOfOne: 512 << 20}

// maxQuotaBytes is the largest value of SettingModuleBytes and
// SettingModuleUploaderBytes.
const maxQuotaBytes = 1 << 40

// CheckModuleSetting returns an error if the value of a module setting is
// invalid. It accepts all other keys.
func CheckModuleSetting(key, value string) (err error) {
	switch key {
	case SettingModuleRetention:
		_, err = parseRetention(value)
	case SettingModuleCount, SettingModuleUploader:
		_, err = parseCount(value)
	case SettingModuleBytes, SettingModuleUploaderBytes:
		_, err = parseBytes(value)
	}
	return err
}

// ModuleRetention returns how long an unused module is kept; 0 means forever.
func (v *View) ModuleRetention() time.Duration {
	return setting(v, SettingModuleRetention, parseRetention, DefaultModuleRetention)
}

// ModuleQuotas returns the quotas for uploads.
func (v *View) ModuleQuotas() ModuleQuotas {
	return ModuleQuotas{
		Modules: setting(v, SettingModuleCount, parseCount, DefaultModuleQuotas.Modules),
		Bytes:   setting(v, SettingModuleBytes, parseBytes, DefaultModuleQuotas.Bytes),
		OfOne:   setting(v, SettingModuleUploader, parseCount, DefaultModuleQuotas.OfOne),

		BytesOfOne: setting(v, SettingModuleUploaderBytes, parseBytes, DefaultModuleQuotas.BytesOfOne),
	}
}

// ModuleUse returns the current use of the quotas. OfOne and BytesOfOne are the
// uploader's use, or 0 if uploader is empty.
func (v *View) ModuleUse(uploader string) ModuleQuotas {
	use := ModuleQuotas{Modules: len(v.modules)}
	for _, m := range v.modules {
		use.Bytes += m.Size
		if uploader != "" && m.Uploader == uploader {
			use.OfOne++
			use.BytesOfOne += m.Size
		}
	}
	return use
}

// setting returns the parsed value of a setting. If the setting is missing or
// invalid, it returns the argument otherwise.
func setting[T any](v *View, key string, parse func(string) (T, error), otherwise T) T {
	if s, set := v.settings[key]; set {
		if value, err := parse(string(s.Value)); err == nil {
			return value
		}
	}
	return otherwise
}

func parseRetention(text string) (time.Duration, error) {
	if text == "off" || text == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if number, days := strings.CutSuffix(text, "d"); days {
		var n uint64
		n, err = strconv.ParseUint(number, 10, 16)
		d = time.Duration(n) * day
	}
	if err != nil || d < minModuleRetention || d > maxModuleRetention {
		return 0, fmt.Errorf("%.32q is neither off nor a duration from %v to %dd, such as 36h or 30d", text, minModuleRetention, maxModuleRetention/day)
	}
	return d, nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < 1 || n > MaxModules {
		return 0, fmt.Errorf("%.32q is not a number from 1 to %d", text, MaxModules)
	}
	return int(n), nil
}

func parseBytes(text string) (int64, error) {
	number, unit := text, uint64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if cut, has := strings.CutSuffix(text, suffix); has {
			number, unit = cut, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseUint(number, 10, 41)
	if err != nil || n < 1 || n > maxQuotaBytes/unit {
		return 0, fmt.Errorf("%.32q is not a size from 1 byte to 1024GiB, such as 512MiB", text)
	}
	return int64(n * unit), nil
}
