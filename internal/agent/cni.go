// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"coelan.io/coelan/internal/config"
)

func (a *Agent) serveCNI(context.Context) error   { return nil }
func (a *Agent) installCNI(context.Context) error { return nil }
func uninstallCNI(config.Config) error            { return nil }
