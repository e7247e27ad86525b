// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	agentConfig     = "coelan-config" // a ConfigMap, and the file in it
	agentConfigFile = "agent.yaml"

	// apiServerConfig is a ConfigMap that tells agents and controllers where the API server is. Without kube-proxy its
	// Service is nowhere before an agent has made it so.
	apiServerConfig = "coelan-api-server"
)

// manifest is what installs Coelan in this sandbox, in parts that follow each other: that of the file, with the way in
// which the sandbox balances Services.
func (s *Sandbox) manifest(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var first, rest []string
	configured := false
	for reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		var object struct {
			Kind     string
			Metadata metav1.ObjectMeta
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		switch {
		case object.Kind == "Namespace":
			first = append(first, string(document))
			continue
		case object.Kind == "ConfigMap" && object.Metadata.Name == agentConfig:
			if document, err = s.configure(document); err != nil {
				return nil, fmt.Errorf("%s: ConfigMap %s: %w", file, agentConfig, err)
			}
			configured = true
		}
		rest = append(rest, string(document))
	}
	const separator = "\n---\n"
	if s.Services != NativeServices {
		return []string{strings.Join(append(first, rest...), separator)}, nil
	}
	if !configured {
		return nil, fmt.Errorf("%s has no ConfigMap %s, in which the agents could be told to balance Services", file, agentConfig)
	}
	address, err := s.apiServerMap()
	if err != nil {
		return nil, err
	}
	return []string{strings.Join(append(first, address), separator), strings.Join(rest, separator)}, nil
}

// configure is the agents' ConfigMap with the sandbox's mode of Services. One that says the same stays as it is, comments
// and all.
func (s *Sandbox) configure(document []byte) ([]byte, error) {
	var object corev1.ConfigMap
	if err := yaml.Unmarshal(document, &object); err != nil {
		return nil, err
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal([]byte(object.Data[agentConfigFile]), &settings); err != nil {
		return nil, fmt.Errorf("%s: %w", agentConfigFile, err)
	}
	services, _ := settings["services"].(map[string]any)
	if services == nil {
		services = map[string]any{}
	}
	if mode, ok := services["mode"]; mode == string(s.Services) || !ok && s.Services == defaultServices {
		return document, nil
	}
	services["mode"] = string(s.Services)
	settings["services"] = services
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, err
	}
	object.Data[agentConfigFile] = string(text)
	return yaml.Marshal(object)
}

// apiServerMap is the ConfigMap that tells where the API server is.
func (s *Sandbox) apiServerMap() (string, error) {
	endpoint := s.apiEndpoint()
	text, err := yaml.Marshal(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: apiServerConfig, Namespace: agentNamespace},
		Data: map[string]string{
			"KUBERNETES_SERVICE_HOST": endpoint.Addr().String(),
			"KUBERNETES_SERVICE_PORT": strconv.Itoa(int(endpoint.Port())),
		},
	})
	return string(text), err
}
