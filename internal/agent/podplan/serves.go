// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"log/slog"
	"path/filepath"
	"strings"

	"coelan.io/coelan/internal/config"
)

// Serves returns what says whether the interfaces that pods ask for by annotation are this agent's
// to make: not if Multus is installed. It looks each time, because Multus may come later.
func Serves(log *slog.Logger, c config.Config) func() bool {
	return func() bool {
		if c.ServesNetworks != config.ServesAuto {
			return c.ServesNetworks == config.ServesAlways
		}
		for _, pattern := range []string{"*.conf", "*.conflist"} {
			files, err := filepath.Glob(filepath.Join(c.CNI.ConfDir, pattern))
			if err != nil {
				log.Error("cannot look for a Multus configuration", "err", err)
			}
			for _, f := range files {
				if strings.Contains(strings.ToLower(filepath.Base(f)), "multus") {
					return false
				}
			}
		}
		return true
	}
}
