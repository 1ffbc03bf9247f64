package main

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// checkProgram checks that a built program is one for the pair, starts without
// files that its system may lack, and has no path of the building machine. A
// cross-compiled program cannot run here, so nothing else would find a fault in
// it before its users do.
func (r *release) checkProgram(pair, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	system, processor, _ := strings.Cut(pair, "/")
	check := map[string]func([]byte, string) error{"linux": checkELF, "darwin": checkMachO, "windows": checkPE}[system]
	if check == nil {
		return fmt.Errorf("unknown system %q: it must be linux, darwin or windows", system)
	}
	if err := check(content, processor); err != nil {
		return err
	}
	builder, err := builderPaths(r.root)
	if err != nil {
		return err
	}
	for _, dir := range builder {
		if bytes.Contains(content, []byte(dir)) {
			return fmt.Errorf("contains %s, a path of the building machine", dir)
		}
	}
	return nil
}

// builderPaths returns the folders of this machine that a program without
// -trimpath names, each with a separator at its end.
func builderPaths(root string) ([]string, error) {
	cmd := exec.Command("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE")
	cmd.Dir = root
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	out := append(strings.Fields(string(text)), root)
	if home, err := os.UserHomeDir(); err == nil {
		out = append(out, home)
	}
	for i := range out {
		out[i] += string(filepath.Separator)
	}
	return slices.DeleteFunc(out, func(dir string) bool { return len(dir) < 3 }), nil // "/" is in every program
}

var errProcessor = errors.New("is for another processor")

func checkELF(content []byte, processor string) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if f.Machine != map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[processor] {
		return fmt.Errorf("%w: %v", errProcessor, f.Machine)
	}
	libraries, err := f.ImportedLibraries()
	if err == nil && len(libraries) > 0 {
		err = fmt.Errorf("needs %q: a static program runs in an empty image", libraries)
	}
	return err
}

// Load commands of <mach-o/loader.h> that debug/macho does not decode.
const (
	lcCodeSignature = 0x1d
	lcBuildVersion  = 0x32
	platformMacOS   = 1
)

func checkMachO(content []byte, processor string) error {
	f, err := macho.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if f.Cpu != map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[processor] {
		return fmt.Errorf("%w: %v", errProcessor, f.Cpu)
	}
	platform, signed := uint32(0), false
	for _, l := range f.Loads {
		switch raw := l.Raw(); {
		case len(raw) >= 12 && binary.LittleEndian.Uint32(raw) == lcBuildVersion:
			platform = binary.LittleEndian.Uint32(raw[8:])
		case len(raw) >= 8 && binary.LittleEndian.Uint32(raw) == lcCodeSignature:
			signed = true
		}
	}
	if platform != platformMacOS {
		return fmt.Errorf("is for platform %d: macOS is %d", platform, platformMacOS)
	}
	if processor == "arm64" && !signed {
		return errors.New("has no code signature: macOS ends such programs on arm64")
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range libraries {
		if !strings.HasPrefix(name, "/usr/lib/") && !strings.HasPrefix(name, "/System/Library/") {
			return fmt.Errorf("needs %s, which is not a part of macOS", name)
		}
	}
	return nil
}

func checkPE(content []byte, processor string) error {
	f, err := pe.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if f.Machine != map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64}[processor] {
		return fmt.Errorf("%w: %#x", errProcessor, f.Machine)
	}
	return nil
}
