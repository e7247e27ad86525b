// SPDX-License-Identifier: Apache-2.0

//go:build integration && neutron

package backend

import (
	"testing"
	"time"

	"coelan.io/coelan/internal/config"
)

// comeAbout bounds the wait for what a backend does after it is asked: with Neutron that may be
// dozens of calls, each of up to a second on a busy machine.
const comeAbout = 2 * time.Minute

// TestBackendNeutron is the suite with a real Neutron.
func TestBackendNeutron(t *testing.T) { suite(t, config.NeutronBackend) }

// TestBackendNeutronPolicies is what a real Neutron enforces.
func TestBackendNeutronPolicies(t *testing.T) { policies(t, config.NeutronBackend) }
