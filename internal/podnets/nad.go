// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// coelanTypes are the CNI plugins that Coelan serves: its own name and those of the
// plugins that it replaces.
var coelanTypes = []string{"coelan-cni", "odlovs-cni", "ovn4nfvk8s-cni", "kuryr-cni"}

// Config is what a NetworkAttachmentDefinition says.
type Config struct {
	// Type is the CNI plugin; of a list its first plugin, which makes the interface. It is empty if
	// spec.config is: the configuration is a file on the nodes.
	Type string
	// Chained are the further plugins of a list.
	Chained []string
	// Coelan says that the Type is Coelan's.
	Coelan bool
	// Network is the Coelan Network that it names; empty: it names none.
	Network string
	// Subnet is the UUID of the subnet of Neutron that Kuryr's annotation names; empty: there is no
	// such annotation.
	Subnet string
}

// plugin has the keys that matter here, of a configuration or of an element of plugins.
type plugin struct {
	Type       string          `json:"type"`
	Network    string          `json:"network"`
	NFNNetwork string          `json:"nfn-network"`
	Plugins    json.RawMessage `json:"plugins"`
}

// foreign has no key of Coelan's: another plugin may give such a key another type.
type foreign struct {
	Type    string          `json:"type"`
	Plugins json.RawMessage `json:"plugins"`
}

// ParseDefinition reads spec.config and Kuryr's annotation. Kuryr's own definitions have no
// spec.config; on one for another plugin its annotation has no effect. The error says what is wrong
// and where, without the object's name.
func ParseDefinition(config string, annotations map[string]string) (Config, error) {
	c, err := parseConfig(config)
	text, given := annotations[AnnotationKuryrConfig]
	if err != nil || !given || c.Type != "" && !c.Coelan {
		return c, err
	}
	c.Coelan = true
	c.Subnet, err = parseKuryr(text)
	return c, err
}

// parseConfig reads spec.config. The error says what is wrong and where, without the object's name.
func parseConfig(text string) (Config, error) {
	if strings.TrimSpace(text) == "" {
		return Config{}, nil
	}
	var whole foreign
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		return Config{}, fmt.Errorf("spec.config %s: %s", quote(text), jsonProblem(err))
	}
	first := json.RawMessage(text)
	var c Config
	if len(whole.Plugins) > 0 {
		var plugins []json.RawMessage
		if err := json.Unmarshal(whole.Plugins, &plugins); err != nil || len(plugins) == 0 {
			return Config{}, fmt.Errorf("spec.config, plugins %s: is not a list of plugins",
				quote(string(whole.Plugins)))
		}
		for i, p := range plugins {
			var f foreign
			if err := json.Unmarshal(p, &f); err != nil || f.Type == "" {
				return Config{}, fmt.Errorf("spec.config, plugins[%d] %s: has no type", i, quote(string(p)))
			}
			if i > 0 {
				c.Chained = append(c.Chained, f.Type)
			}
		}
		first = plugins[0]
	}
	return c, c.read(first)
}

// read takes over what the plugin that makes the interface says.
func (c *Config) read(text json.RawMessage) error {
	var f foreign
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("spec.config %s: %s", quote(string(text)), jsonProblem(err))
	}
	if c.Type = f.Type; c.Type == "" {
		return fmt.Errorf("spec.config %s: has no type", quote(string(text)))
	}
	if c.Coelan = slices.Contains(coelanTypes, c.Type); !c.Coelan {
		return nil
	}
	var p plugin
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("spec.config %s: network: %s", quote(string(text)), jsonProblem(err))
	}
	if c.Network = p.Network; c.Network == "" {
		c.Network = p.NFNNetwork
	}
	if p.NFNNetwork != "" && c.Network != p.NFNNetwork {
		return fmt.Errorf("spec.config: network %q and nfn-network %q name different Networks", p.Network, p.NFNNetwork)
	}
	return nil
}
