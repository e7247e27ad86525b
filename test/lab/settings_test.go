// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/config"
)

// An agent gets what a lab sets, and nothing of what it could not know.
func TestSettings(t *testing.T) {
	c := config.Default()
	c.StateDir = "/elsewhere"
	c.CNI.Socket = "/elsewhere/cni.sock"
	c.SNAT.Enabled = false
	text, err := settings(c)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"stateDir": "/elsewhere", "cni": map[string]any{"socket": "/elsewhere/cni.sock"}, "snat": map[string]any{"enabled": false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if text, err := settings(config.Default()); err != nil || string(text) != "{}\n" {
		t.Errorf("settings of the default are %q, %v", text, err)
	}
}
