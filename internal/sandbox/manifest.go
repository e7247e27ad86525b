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
	"coelan.io/coelan/internal/neutronserver"
)

const (
	agentConfig     = "coelan-config" // a ConfigMap, and the file in it
	agentConfigFile = "agent.yaml"
)

// neutronRights is a ClusterRole, without which a controller cannot work with Neutron.
const neutronRights = "coelan-controller-neutron"

// manifest is what installs Coelan in this sandbox: that of the files, with the way in which the
// sandbox balances Services, and its backend.
func (s *Sandbox) manifest(files []string) (string, error) {
	var documents []string
	there := map[string]bool{}
	for _, file := range files {
		more, err := s.documents(file, there)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		documents = append(documents, more...)
	}
	for _, needed := range []struct {
		asked             bool
		object, otherwise string
	}{
		{s.Services == NativeServices, "ConfigMap " + agentConfig, "in which the agents could be told to balance Services"},
		{s.Backend.onOVN(), "Deployment " + controllerName, "which could be told to use OVN"},
		{s.Backend == NeutronBackend, "ClusterRole " + neutronRights, "which the controllers need: make the file of the chart with " +
			"config.backend.type neutron"},
	} {
		if needed.asked && !there[needed.object] {
			return "", fmt.Errorf("%s has no %s, %s", strings.Join(files, ", "), needed.object, needed.otherwise)
		}
	}
	return strings.Join(documents, "\n---\n"), nil
}

// documents are the objects of a file as they are to be applied, which are added to those that are
// there.
func (s *Sandbox) documents(file string, there map[string]bool) (documents []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		var object struct {
			Kind     string
			Metadata metav1.ObjectMeta
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, err
		}
		key := object.Kind + " " + object.Metadata.Name
		switch key {
		case "ConfigMap " + agentConfig:
			document, err = s.configure(document)
		case "Deployment " + controllerName:
			document, err = s.control(document)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		there[key] = true
		documents = append(documents, string(document))
	}
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
	if !s.Backend.onOVN() && (mode == string(s.Services) || !said && s.Services == defaultServices) {
		return document, nil
	}
	services["mode"] = string(s.Services)
	settings["services"] = services
	if s.Backend.onOVN() {
		backend := map[string]any{"type": string(s.Backend)}
		if s.Backend == NeutronBackend {
			// Machines of OpenStack may come later. Their cards do not say how large packets may be
			// in the tunnels below them.
			backend["machineBridge"], settings["mtu"] = true, s.tunnelMTU()
		}
		settings["backend"] = backend
		settings["encapsulation"] = string(config.Geneve)
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, err
	}
	object.Data[agentConfigFile] = string(text)
	return yaml.Marshal(object)
}

// control is the controllers' Deployment with the sandbox's backend.
func (s *Sandbox) control(document []byte) ([]byte, error) {
	if !s.Backend.onOVN() {
		return document, nil
	}
	args := []string{"--backend=" + string(s.Backend), "--northbound=" + s.ovnRemote(northboundPort)}
	if s.Backend == NeutronBackend {
		args = append(args, "--neutron-endpoint="+s.neutron().Endpoint(), "--neutron-project="+neutronserver.Project,
			"--octavia-endpoint="+s.octavia().Endpoint(), "--octavia-subnet="+s.octaviaSubnet)
	}
	var object appsv1.Deployment
	if err := yaml.Unmarshal(document, &object); err != nil {
		return nil, err
	}
	for i := range object.Spec.Template.Spec.Containers {
		c := &object.Spec.Template.Spec.Containers[i]
		c.Args = append(c.Args, args...)
	}
	return yaml.Marshal(object)
}
