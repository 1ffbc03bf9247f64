package meta

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings about modules; from sharding.VersionModuleRetention on. One that is
// not set, or that CheckModuleSetting would refuse, is its default.
const (
	// SettingModuleRetention is how long a module stays that nothing needs: a
	// number of days such as 30d, a time such as 36h, or off.
	SettingModuleRetention = "module-retention"
	// SettingModuleCount, SettingModuleBytes and SettingModuleUploader are how
	// many modules there may be, how many bytes they may have, such as 1GiB, and
	// how many may be of one uploader. What there is stays when there is more.
	SettingModuleCount    = "module-quota-count"
	SettingModuleBytes    = "module-quota-bytes"
	SettingModuleUploader = "module-quota-uploader"
	// SettingModuleUploaderBytes is how many bytes the modules of one uploader may
	// have; from sharding.VersionUploaderBytes on.
	SettingModuleUploaderBytes = "module-quota-uploader-bytes"
)

// Bounds and default of SettingModuleRetention. A module is pushed before it is
// bound: the least one gives that the time.
const (
	DefaultModuleRetention = 30 * day
	minModuleRetention     = time.Second
	maxModuleRetention     = 3650 * day
	day                    = 24 * time.Hour
)

// ModuleQuotas bound the modules of a cluster.
type ModuleQuotas struct {
	Modules int   // of the cluster
	Bytes   int64 // of these
	OfOne   int   // of one uploader
	// BytesOfOne are those of the modules of one uploader. Without it a single
	// uploader of large modules leaves no room for those of all others.
	BytesOfOne int64
}

// DefaultModuleQuotas hold where nothing is set.
var DefaultModuleQuotas = ModuleQuotas{Modules: MaxModules, Bytes: 1 << 30, OfOne: 100, BytesOfOne: 512 << 20}

// maxQuotaBytes is the most that SettingModuleBytes and
// SettingModuleUploaderBytes may say.
const maxQuotaBytes = 1 << 40

// CheckModuleSetting refuses a setting about modules that says nothing; every
// other one passes.
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

// ModuleRetention is how long a module stays that nothing needs; 0 is for ever.
func (v *View) ModuleRetention() time.Duration {
	return setting(v, SettingModuleRetention, parseRetention, DefaultModuleRetention)
}

// ModuleQuotas are those that pushes are held to.
func (v *View) ModuleQuotas() ModuleQuotas {
	return ModuleQuotas{
		Modules: setting(v, SettingModuleCount, parseCount, DefaultModuleQuotas.Modules),
		Bytes:   setting(v, SettingModuleBytes, parseBytes, DefaultModuleQuotas.Bytes),
		OfOne:   setting(v, SettingModuleUploader, parseCount, DefaultModuleQuotas.OfOne),

		BytesOfOne: setting(v, SettingModuleUploaderBytes, parseBytes, DefaultModuleQuotas.BytesOfOne),
	}
}

// ModuleUse is what there is of what ModuleQuotas bound; OfOne and BytesOfOne are
// of an uploader, and 0 of none.
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

// setting is what a setting says, where it says something.
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
		return 0, fmt.Errorf("%.32q is not a time from %v to %dd, such as 36h or 30d, and not off", text, minModuleRetention, maxModuleRetention/day)
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
		return 0, fmt.Errorf("%.32q is not a number of bytes from 1 to 1024GiB, such as 512MiB", text)
	}
	return int64(n * unit), nil
}
