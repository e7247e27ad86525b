// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/config"
)

const (
	agentConfig     = "coelan-config" // a ConfigMap, and the file in it
	agentConfigFile = "agent.yaml"
)

// manifest is what installs Coelan in this sandbox: that of the file, with the way in which the
// sandbox balances Services, and its backend.
func (s *Sandbox) manifest(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var documents []string
	configured, controlled := false, false
	for reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		var object struct {
			Kind     string
			Metadata metav1.ObjectMeta
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		switch {
		case object.Kind == "ConfigMap" && object.Metadata.Name == agentConfig:
			document, err = s.configure(document)
			configured = true
		case object.Kind == "Deployment" && object.Metadata.Name == controllerName && s.Backend == OVNBackend:
			document, err = s.control(document)
			controlled = true
		}
		if err != nil {
			return "", fmt.Errorf("%s: %s %s: %w", file, object.Kind, object.Metadata.Name, err)
		}
		documents = append(documents, string(document))
	}
	if s.Services == NativeServices && !configured {
		return "", fmt.Errorf("%s has no ConfigMap %s, in which the agents could be told to balance Services", file,
			agentConfig)
	}
	if s.Backend == OVNBackend && !controlled {
		return "", fmt.Errorf("%s has no Deployment %s, which could be told to use OVN", file, controllerName)
	}
	return strings.Join(documents, "\n---\n"), nil
}

// configure is the agents' ConfigMap with the sandbox's mode of Services and its backend. One that
// says the same stays as it is, comments and all.
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
	mode, said := services["mode"]
	if s.Backend != OVNBackend && (mode == string(s.Services) || !said && s.Services == defaultServices) {
		return document, nil
	}
	services["mode"] = string(s.Services)
	settings["services"] = services
	if s.Backend == OVNBackend {
		settings["backend"] = map[string]any{"type": string(OVNBackend)}
		settings["encapsulation"] = string(config.Geneve)
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, err
	}
	object.Data[agentConfigFile] = string(text)
	return yaml.Marshal(object)
}

// control is the controllers' Deployment with the sandbox's northbound database.
func (s *Sandbox) control(document []byte) ([]byte, error) {
	var object appsv1.Deployment
	if err := yaml.Unmarshal(document, &object); err != nil {
		return nil, err
	}
	for i := range object.Spec.Template.Spec.Containers {
		c := &object.Spec.Template.Spec.Containers[i]
		c.Args = append(c.Args, "--backend="+string(OVNBackend), "--northbound="+s.ovnRemote(northboundPort))
	}
	return yaml.Marshal(object)
}
